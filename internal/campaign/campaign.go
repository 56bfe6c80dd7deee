// Package campaign marks tests that take minutes or kill much: `make campaign` runs them.
package campaign

import (
	"os"
	"testing"
)

// Only skips a test unless EVICTD_CAMPAIGN=1, as `make campaign` sets it. The name of
// such a test begins with TestCampaign.
func Only(t testing.TB) {
	t.Helper()
	if os.Getenv("EVICTD_CAMPAIGN") != "1" {
		t.Skip("skipped: a campaign: make campaign")
	}
}
