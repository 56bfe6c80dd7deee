package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

func TestAContainerIsNoKubeletWhateverItCallsItself(t *testing.T) {
	proc := t.TempDir()
	for pid, status := range map[string]string{
		"7":  "Name:\tkubelet\nUid:\t1000\nNSpid:\t7\t1\n",
		"8":  "Name:\tx\\nName:\tkubelet\nNSpid:\t8\n",
		"9":  "Name:\tkubelets\nNSpid:\t9\n",
		"10": "",
	} {
		put(t, filepath.Join(proc, pid, "status"), status)
	}
	if pid := kubeletIn(proc); pid != 0 {
		t.Errorf("process %d is taken for a kubelet", pid)
	}
	put(t, filepath.Join(proc, "11", "status"), "Name:\tkubelet\nUmask:\t0022\nNSpid:\t11\n")
	if pid := kubeletIn(proc); pid != 11 {
		t.Errorf("the kubelet is not found, but %d", pid)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}
