package suite_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/harness"
)

// scheduler runs evictd-scheduler until the test ends.
func scheduler(t testing.TB, flags ...string) *harness.Process {
	t.Helper()
	return harness.Scheduler(t, filepath.Join(harness.Dir(t), "status.sock"), flags...)
}

// foreign is the path of a program of Kubernetes. Where it is not built, the test is
// skipped.
func foreign(t testing.TB, name string) string {
	t.Helper()
	path, err := apiserver.Program(name)
	if _, unavailable := errors.AsType[*apiserver.UnavailableError](err); unavailable {
		t.Skip("skipped:", err)
	}
	require.NoError(t, err)
	return path
}

// kubectl runs a current kubectl as the administrator.
func (a *api) kubectl(args ...string) string {
	a.t.Helper()
	path := foreign(a.t, "kubectl")
	out, err := exec.CommandContext(a.t.Context(), path, append(a.Args(apiserver.Admin), args...)...).CombinedOutput()
	if err != nil {
		a.t.Fatalf("kubectl %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// grant gives evictd's programs the rights of deploy/rbac, where rights matter.
func (a *api) grant() {
	a.t.Helper()
	if a.Name != "kube-apiserver" {
		return
	}
	root, err := sandbox.SourceRoot()
	require.NoError(a.t, err)
	a.kubectl("apply", "--server-side", "--filename="+filepath.Join(root, "deploy/rbac"))
}
