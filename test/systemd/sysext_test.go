package systemd_test

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// TestAnExtensionImageRunsEvictd merges the image of `make sysext` into /usr of a host on which
// evictd is not installed.
// rule: S9.18
func TestAnExtensionImageRunsEvictd(t *testing.T) {
	found, err := filepath.Glob("../../bin/evictd_*_" + runtime.GOARCH + ".raw")
	if err != nil || len(found) != 1 {
		t.Skip("skipped: there is no bin/evictd_*.raw: make sysext builds it")
	}
	m := boot(t, "")
	const extension = "/var/lib/extensions/evictd"
	// The kernel reads the image here: the machine has no loop devices.
	copied := exec.Command("unshare", "--mount", "sh", "-c", `mount -t erofs -o loop,ro "$0" "$1" && mkdir -p "$2" && cp -a "$1/usr" "$2"`,
		found[0], t.TempDir(), filepath.Join(m.root, extension))
	if out, err := copied.CombinedOutput(); err != nil {
		t.Skipf("skipped: the image cannot be mounted here: %s", out)
	}
	m.do("systemd-sysext", "merge")
	m.do("systemctl", "daemon-reload")
	if got := m.property("multi-user.target", "Upholds"); got != daemon {
		t.Errorf("multi-user.target upholds %q; expected %s", got, daemon)
	}
	m.do("systemctl", "start", daemon)
	if status := m.do("evictd", "status"); !strings.Contains(status, "memory.available") {
		t.Errorf("evictd status: %s", status)
	}
	if want := string(require.ReadFile(t, "../../systemd/evictd.yaml")); m.do("cat", "/etc/evictd/evictd.yaml") != strings.TrimSpace(want) {
		t.Error("the configuration is not that of the package")
	}
	if got := m.do("stat", "--format=%a %G", "/run/evictd/status.sock"); got != "660 evictd" {
		t.Errorf("the socket of the status is %s", got)
	}
	m.do("systemctl", "stop", "evictd-sysext.service", daemon, "evictd.socket", "evictd-agent.socket")
	m.do("systemd-sysext", "unmerge")
	if _, _, err := m.try("evictd", "version"); err == nil {
		t.Error("evictd is still there")
	}
}
