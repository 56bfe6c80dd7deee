package daemon

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/internal/require"
)

func TestAReloadShowsEveryFieldThatDiffersAndWhenItTakesEffect(t *testing.T) {
	load := func(text string) config.EvictdConfiguration {
		t.Helper()
		c, err := config.Load([]byte("apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n" + text))
		require.NoError(t, err)
		return c
	}
	before := load("evictionHard: {memory.available: 100Mi, nodefs.available: 10%}\nmode: backstop\nmemoryModel: workingSet\n")
	after := load("evictionHard: {memory.available: 200Mi, pid.available: 5%}\nmode: backstop\nstatusAddress: none\nevictionPressureTransitionPeriod: 30s\n")
	var got []string
	for _, c := range changesBetween(before, after) {
		got = append(got, fmt.Sprintf("%s: %q to %q %s", c.field, c.from, c.to, c.when()))
	}
	want := []string{
		`evictionHard[memory.available]: "100Mi" to "200Mi" now`,
		`evictionHard[nodefs.available]: "10%" to "" now`,
		`evictionHard[pid.available]: "" to "5%" now`,
		`evictionPressureTransitionPeriod: "" to "30s" now`,
		`memoryModel: "workingSet" to "" now`,
		`statusAddress: "" to "none" at the next start`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
