package benchmarks

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
)

const root = "../.."

// shown is how many of the last lines of a target that fails are shown.
const shown = 100

// skip is a line of a test that is skipped.
var skip = regexp.MustCompile(`(?m)\.go:\d+: skipped: (.*)$`)

// TestEachTargetAtItsSmallest makes each target that measures, in the order of the Makefile.
func TestEachTargetAtItsSmallest(t *testing.T) {
	if os.Getenv(campaign.SmallestVariable) == "" {
		t.Skip("skipped: make test-all PARTS=benchmarks runs each benchmark and campaign")
	}
	rules := Rules(string(require.ReadFile(t, filepath.Join(root, "Makefile"))))
	elsewhere := strings.Fields(os.Getenv(ElsewhereVariable))
	for i := range rules {
		target := rules[i].Target
		if !rules[i].Measures() || slices.Contains(elsewhere, target) {
			continue
		}
		t.Run(target, func(t *testing.T) {
			for _, need := range Needs(rules, target) {
				mustBeAvailable(t, need)
			}
			c := exec.CommandContext(t.Context(), "make", "--no-print-directory", target)
			c.Dir, c.SysProcAttr = root, &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
			c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
			out, err := c.CombinedOutput()
			if err != nil {
				lines := strings.Split(string(out), "\n")
				t.Fatalf("make %s: %v\n%s", target, err, strings.Join(lines[max(0, len(lines)-shown):], "\n"))
			}
			var reasons []string
			for _, found := range skip.FindAllStringSubmatch(string(out), -1) {
				reasons = append(reasons, found[1])
			}
			for _, reason := range reasons {
				t.Run("left out", func(t *testing.T) { t.Skip("skipped:", reason) })
			}
		})
	}
}

// mustBeAvailable skips the test if NAME-if-possible of the Makefile says why NAME cannot be built.
func mustBeAvailable(t *testing.T, name string) {
	t.Helper()
	why, err := os.ReadFile(filepath.Join(root, "test", name, "bin/unavailable"))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	require.NoError(t, err)
	t.Skip("skipped:", strings.TrimSpace(string(why)))
}
