package simulate_test

import (
	"testing"

	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/internal/golden"
)

// FuzzScenario simulates every valid scenario twice.
func FuzzScenario(f *testing.F) {
	golden.Seed(f, "testdata/*.yaml")
	f.Add([]byte("apiVersion: evictd.io/v1alpha1\nkind: Scenario\nspec:\n  steps: [null, {at: 1s, signals: {memory.available: 1e30, pid.available: null}}]\n  pods: [null, {metadata: {name: [a]}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, again := output(t, data), output(t, data)
		if string(first) != string(again) {
			t.Fatalf("comes to\n%s\nand then to\n%s", first, again)
		}
		if s, err := simulate.Parse(data); err == nil {
			for _, step := range s.Run() {
				if step.Text() == "" {
					t.Fatalf("step at %s says nothing", step.At)
				}
			}
		}
	})
}
