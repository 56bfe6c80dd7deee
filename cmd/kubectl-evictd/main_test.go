package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/require"
)

// fakeKubectl has one pod of evictd, on node n1, and another where all are asked for, and prints what it
// is to run there.
const fakeKubectl = `#!/bin/sh
case "$*" in
*"get pods "*"spec.nodeName=n1,"*) echo n1 evictd-abc ;;
*"get pods "*"spec.nodeName="*) ;;
*"get pods "*) printf 'n1 evictd-abc\nn2 evictd-def\n' ;;
*) echo "$@" ;;
esac
`

// rule: S9.12
func TestACommandOfEvictdRunsInThePodOfItsNode(t *testing.T) {
	program := filepath.Join(t.TempDir(), "kubectl")
	require.NoError(t, os.WriteFile(program, []byte(fakeKubectl), 0o755))
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"status n1", 0, "exec --namespace=evictd-system --container=evictd evictd-abc -- /usr/bin/evictd status --status-address=unix:/host/run/evictd/status.sock\n"},
		{"explain n1 -- -o json", 0, "exec --namespace=evictd-system --container=evictd evictd-abc -- /usr/bin/evictd explain --status-address=unix:/host/run/evictd/status.sock -o json\n"},
		{"why n1 --context=prod -- shop/cart", 0, "--context=prod exec --namespace=evictd-system --container=evictd evictd-abc -- /usr/bin/evictd why --state-dir=/host/var/lib/evictd shop/cart\n"},
		{"why n1", 0, " why --state-dir=/host/var/lib/evictd --last\n"},
		{"status n2", cli.ExitFault, "kubectl-evictd: node n2 has no running pod of daemonset evictd-system/evictd\n"},
		{"report", 0, "Node n1\nexec --namespace=evictd-system --container=evictd evictd-abc -- /usr/bin/evictd report --state-dir=/host/var/lib/evictd\n\nNode n2\nexec --namespace=evictd-system --container=evictd evictd-def -- "},
		{"report n1", 0, "Node n1\n"},
		{"status", cli.ExitBadInput, "expected kubectl-evictd status NODE"},
	} {
		var out bytes.Buffer
		command := newCommand()
		command.SetOut(&out)
		command.SetErr(&out)
		args := strings.Fields(c.args)
		args = append([]string{args[0], "--kubectl=" + program}, args[1:]...)
		if code := cli.Execute(t.Context(), command, args); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit code %d, %q; expected %d, %q", c.args, code, out.String(), c.code, c.want)
		}
	}
}
