package runtest

import (
	"os"
	"testing"
)

// Campaign skips a test that takes minutes, unless EVICTD_CAMPAIGN=1 asks for it.
func Campaign(t testing.TB) {
	t.Helper()
	if os.Getenv("EVICTD_CAMPAIGN") != "1" {
		t.Skip("skipped: a campaign, run by make campaign")
	}
}
