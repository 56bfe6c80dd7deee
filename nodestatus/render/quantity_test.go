package render_test

import (
	"testing"

	"github.com/evictd/evictd/nodestatus/render"
)

func TestAQuantityIsRoundedToWhatAPersonReads(t *testing.T) {
	for _, c := range []struct{ signal, quantity, want string }{
		{"memory.available", "", ""},
		{"memory.available", "0", "0"},
		{"memory.available", "1", "1"},
		{"memory.available", "700Mi", "700Mi"},
		{"memory.available", "734003201", "700Mi"},
		{"memory.available", "1503238553", "1.4Gi"},
		{"memory.available", "-1503238553", "-1.4Gi"},
		{"nodefs.inodesFree", "15877750", "15.9M"},
		{"pid.available", "999", "999"},
		{"pid.available", "1k", "1k"},
	} {
		if got := render.Short(c.signal, c.quantity); got != c.want {
			t.Errorf("%s of %s: %s, want %s", c.quantity, c.signal, got, c.want)
		}
	}
}
