// Package campaign marks the tests that only `make campaign` runs, because they take minutes or kill many processes, and
// sets how much work they and the benchmarks do.
package campaign

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// SmallestVariable is set if campaigns and benchmarks are to do as little as shows that they work. Their figures say
// nothing then.
const SmallestVariable = "EVICTD_SMALLEST"

// Only skips a test unless EVICTD_CAMPAIGN=1, as `make campaign` sets it. The name of
// such a test begins with TestCampaign.
func Only(t testing.TB) {
	t.Helper()
	if os.Getenv("EVICTD_CAMPAIGN") != "1" {
		t.Skip("skipped: a campaign: make campaign")
	}
}

// Size is usual, or least if EVICTD_SMALLEST is set.
func Size[T any](usual, least T) T {
	if os.Getenv(SmallestVariable) != "" {
		return least
	}
	return usual
}

// Count is the number in an environment variable, or Size without it. The test fails if that is no number above 0.
func Count(t testing.TB, variable string, usual, least int) int {
	t.Helper()
	return variableOr(t, variable, Size(usual, least), strconv.Atoi, "a number above 0")
}

// Span is Count of a duration.
func Span(t testing.TB, variable string, usual, least time.Duration) time.Duration {
	t.Helper()
	return variableOr(t, variable, Size(usual, least), time.ParseDuration, "a duration above 0, such as 30m")
}

func variableOr[T int | time.Duration](t testing.TB, variable string, size T, parse func(string) (T, error), expected string) T {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return size
	}
	n, err := parse(text)
	if err != nil || n <= 0 {
		t.Fatalf("%s=%q: expected %s", variable, text, expected)
	}
	return n
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
