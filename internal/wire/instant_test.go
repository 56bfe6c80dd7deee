package wire

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"
)

// TestAnInstantIsTheSameAfterTheClockIsSet has the reader's clock an hour ahead: the message
// has no time of day.
func TestAnInstantIsTheSameAfterTheClockIsSet(t *testing.T) {
	type message struct{ At, None Instant }
	var text []byte
	synctest.Test(t, func(t *testing.T) {
		var err error
		if text, err = json.Marshal(message{At: Instant{time.Now().Add(7 * time.Second)}}); err != nil {
			t.Fatal(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		var got message
		if err := json.Unmarshal(text, &got); err != nil || time.Until(got.At.Time) != 7*time.Second || !got.None.IsZero() {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	})
	if err := json.Unmarshal([]byte(`{"At": "soon"}`), &message{}); err == nil {
		t.Error("a text was taken as an instant")
	}
}
