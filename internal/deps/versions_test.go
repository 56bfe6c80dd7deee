package deps

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// alike are the modules that require the versions of the main module. A package is compiled once for two modules
// only if its version, and the version of each package that it imports, is the same in both.
var alike = []string{"test/controlplane/parts", "test/deploy/parts"}

// unlike are modules with few packages, which a program of alike requires in a later version.
var unlike = map[string]bool{"github.com/opencontainers/selinux": true}

func TestModulesThatShareTheBuildCacheRequireTheSameVersions(t *testing.T) {
	ours := required(t, root)
	for _, dir := range alike {
		for name, version := range required(t, filepath.Join(root, dir)) {
			if want, is := ours[name]; is && want != version && !unlike[name] {
				t.Errorf("%s requires %s %s, and go.mod %s: every package that imports it is compiled twice (go -C %s get %s@%s)",
					dir, name, version, want, dir, name, want)
			}
		}
	}
}

// required are the versions that the go.mod of a directory requires, by module.
func required(t *testing.T, dir string) map[string]string {
	t.Helper()
	out, err := exec.Command("go", "-C", dir, "mod", "edit", "-json").Output()
	require.NoError(t, err)
	var file struct {
		Require []struct{ Path, Version string }
	}
	require.NoError(t, json.Unmarshal(out, &file))
	versions := map[string]string{}
	for _, r := range file.Require {
		versions[r.Path] = r.Version
	}
	return versions
}
