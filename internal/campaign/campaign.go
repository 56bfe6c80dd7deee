// Package campaign marks tests that take minutes or kill much: `make campaign` runs them.
package campaign

import (
	"os"
	"strconv"
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

// Seed is EVICTD_SEED, or otherwise another.
func Seed(t testing.TB, another uint64) uint64 {
	t.Helper()
	text := os.Getenv("EVICTD_SEED")
	if text == "" {
		return another
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal("EVICTD_SEED:", err)
	}
	return seed
}
