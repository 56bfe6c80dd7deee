// Package browser_test opens the status pages of the built programs in a real
// browser, Chromium; -artifacts keeps the screenshots.
package browser_test

import (
	"os"
	"testing"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// freeAddress is an address of loopback on which no program listens now.
func freeAddress(t *testing.T) string {
	t.Helper()
	found, err := process.Addresses(1)
	require.NoError(t, err)
	return found[0]
}
