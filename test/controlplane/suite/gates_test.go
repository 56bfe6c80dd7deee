package suite_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// TestEveryGateOfKubeSchedulerIsKnown reads the source of kube-scheduler: each feature gate that
// it reads, and whose last stage is on by default, has a row in docs/differences.md.
func TestEveryGateOfKubeSchedulerIsKnown(t *testing.T) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	list.Dir = "../parts"
	dir, err := list.Output()
	if err != nil || strings.TrimSpace(string(dir)) == "" {
		t.Skip("needs the source of k8s.io/kubernetes, which make controlplane downloads")
	}
	root := strings.TrimSpace(string(dir))
	source := require.ReadFile(t, filepath.Join(root, "pkg/features/kube_features.go"))
	page := require.ReadFile(t, "../../../docs/differences.md")
	read := gatesReadBelow(t, filepath.Join(root, "pkg/scheduler"), filepath.Join(root, "cmd/kube-scheduler"))
	found := 0
	for _, gate := range regexp.MustCompile(`(?m)^\t(?:\w+\.)?(\w+): \{\n((?:\t\t\{.*\n)+)\t\},`).FindAllStringSubmatch(string(source), -1) {
		stages := strings.Split(strings.TrimSpace(gate[2]), "\n")
		if !read[gate[1]] || !strings.Contains(stages[len(stages)-1], "Default: true") {
			continue
		}
		if found++; !regexp.MustCompile("(?m)^\\| .*`" + gate[1] + "`").Match(page) {
			t.Errorf("docs/differences.md has no row of the feature gate %s", gate[1])
		}
	}
	if found < 20 {
		t.Errorf("%d feature gates found", found)
	}
}

// gatesReadBelow are the names NAME of features.NAME in Go files that are no tests.
func gatesReadBelow(t *testing.T, dirs ...string) map[string]bool {
	names := map[string]bool{}
	for _, dir := range dirs {
		require.NoError(t, filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			text, err := os.ReadFile(file)
			for _, name := range regexp.MustCompile(`features\.(\w+)`).FindAllStringSubmatch(string(text), -1) {
				names[name[1]] = true
			}
			return err
		}))
	}
	return names
}
