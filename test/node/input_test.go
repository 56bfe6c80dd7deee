package node_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

func TestBadInputOfRunIsOneClearErrorAndNothingStarts(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	file := func(name, text string) string {
		path := filepath.Join(n.Dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	header := "apiVersion: evictd.io/v1alpha1\nkind: EvictdConfiguration\n"
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	busySocket, err := net.Listen("unix", filepath.Join(n.Dir, "busy.sock"))
	require.NoError(t, err)
	defer busySocket.Close()
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}

	for name, c := range map[string]struct {
		args []string
		user *syscall.Credential
		want string
	}{
		"unknown flag":               {args: []string{"--frobnicate"}, want: "unknown flag: --frobnicate"},
		"argument":                   {args: []string{"now"}, want: `unknown command "now"`},
		"missing configuration":      {args: []string{"--config=" + filepath.Join(n.Dir, "none.yaml")}, want: "none.yaml: no such file"},
		"malformed configuration":    {args: []string{"--config=" + file("bad.yaml", "kind: [")}, want: "bad.yaml: "},
		"unknown field":              {args: []string{"--config=" + file("field.yaml", header+"evictionHart: {}\n")}, want: `field.yaml: unknown field "evictionHart"`},
		"unknown signal":             {args: []string{"--eviction-hard=memory.free<100Mi"}, want: `"memory.free"`},
		"unknown signal in a file":   {args: []string{"--config=" + file("signal.yaml", header+"evictionHard: {memory.free: 100Mi}\n")}, want: "evictionHard[memory.free]"},
		"faulty quantity":            {args: []string{"--eviction-hard=memory.available<many"}, want: "many"},
		"soft without grace":         {args: []string{"--eviction-soft=memory.available<100Mi"}, want: "evictionSoftGracePeriod[memory.available]"},
		"relative cgroup":            {args: []string{"--cgroup-root=here"}, want: "cgroup root here: not an absolute path"},
		"busy address":               {args: []string{"--status-address=" + busy.Addr().String()}, want: busy.Addr().String() + ": bind: address already in use"},
		"busy socket":                {args: []string{"--status-address=unix:" + busySocket.Addr().String()}, want: busySocket.Addr().String() + " is in use by another process"},
		"file for a socket":          {args: []string{"--status-address=unix:" + file("plain", "")}, want: "plain is in the way and is no socket"},
		"address with a host name":   {args: []string{"--status-address=localhost:1"}, want: `--status-address "localhost:1"`},
		"threshold above capacity":   {args: []string{"--eviction-hard=memory.available<257Mi"}, want: "--eviction-hard[memory.available]"},
		"reservation above capacity": {args: []string{"--system-reserved=memory=300Mi"}, want: "--system-reserved"},
		"a file for manifests":       {args: []string{"--pod-manifests=" + file("manifest", "")}, want: "read pod manifests in " + filepath.Join(n.Dir, "manifest") + ": not a directory"},
		"unknown mode":               {args: []string{"--mode=nativ"}, want: "--mode"},
		"hard grace too long":        {args: []string{"--hard-eviction-grace-period=2s"}, want: "--hard-eviction-grace-period 2s"},
		"no API server's address":    {args: []string{"--server=10.0.0.1:6443"}, want: "--server 10.0.0.1:6443: expected unix:PATH or a URL"},
		"an impossible cgroup":       {args: []string{"--config=" + file("init.yaml", header+"outside: [init.scope]\n")}, want: "outside[0]: Invalid value: \"init.scope\": must not be the cgroup of init"},
		"the cgroup of the pods":     {args: []string{"--pods-cgroup=pods", "--config=" + file("pods.yaml", header+"outside: [pods/one]\n")}, want: "outside[0]: \"pods/one\": the cgroup of the pods is"},
		"memory given and measured":  {args: []string{"--node-memory=1Gi"}, want: "--node-memory and --cgroup-root exclude each other"},
		"wrong user":                 {user: nobody, want: "user 65534 may not end other users' processes"},
	} {
		t.Run(name, func(t *testing.T) {
			evictd := n.Command(append([]string{sandbox.CgroupRoot(n.Group)}, c.args...)...)
			evictd.SysProcAttr = &syscall.SysProcAttr{Credential: c.user}
			stdout, stderr, code := harness.Finish(t, evictd)
			if code != 2 || stdout != "" {
				t.Errorf("exit code %d, stdout %q, want 2 and nothing", code, stdout)
			}
			var faults []string
			for line := range strings.Lines(stderr) {
				if fault, ok := strings.CutPrefix(line, "evictd: "); ok {
					faults = append(faults, fault)
				} else if !strings.Contains(line, "level=WARN msg=configuration") {
					t.Errorf("unexpected line %q", line)
				}
			}
			if len(faults) != 1 || !strings.Contains(faults[0], c.want) {
				t.Errorf("faults %q, want one with %q", faults, c.want)
			}
			for _, started := range []string{n.StatusFile(), n.Socket()} {
				if _, err := os.Lstat(started); !os.IsNotExist(err) {
					t.Errorf("%s was made", started)
					os.Remove(started)
				}
			}
		})
	}
}

func TestTheOtherCommandsAnswer(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	p := n.Start("only", sandbox.Spec{Request: "16Mi"})
	p.Do("hold 32Mi")
	d := n.Evictd("--eviction-hard=memory.available<32Mi,nodefs.available<1Ki,imagefs.available<1Ki")
	d.AwaitPods(memorySignal, p)

	stdout, stderr, code := evictctl(t, "version")
	if code != 0 || stderr != "" || strings.TrimSpace(stdout) == "" {
		t.Errorf("version: %d, %q, %q", code, stdout, stderr)
	}
	stdout, stderr, code = evictctl(t, "status", "--status-address=unix:"+n.Socket())
	if code != 0 || stderr != "" {
		t.Errorf("status: %d, %q", code, stderr)
	}
	for _, part := range []string{"node node-1, mode native", "memory.available", "hard 32Mi", "MemoryPressure=False", "eviction order for memory.available\n", "eviction order for nodefs.available, imagefs.available, containerfs.available\n", "default/only"} {
		if !strings.Contains(stdout, part) {
			t.Errorf("status lacks %q:\n%s", part, stdout)
		}
	}
	stdout, _, code = evictctl(t, "status", "-o", "json", "--status-address=unix:"+n.Socket())
	if code != 0 || !json.Valid([]byte(stdout)) {
		t.Errorf("status -o json: %d, %q", code, stdout)
	}
	_, stderr, code = evictctl(t, "status", "--status-address=unix:"+n.Dir+"/none.sock")
	if code != 1 || !strings.Contains(stderr, "no evictd answers at unix:"+n.Dir+"/none.sock") {
		t.Errorf("status without a daemon: %d, %q", code, stderr)
	}
	stdout, stderr, code = evictctl(t, "doctor")
	if code != 0 || stderr != "" || !strings.Contains(stdout, "cgroups") || !strings.Contains(stdout, "pidfd") {
		t.Errorf("doctor: %d, %q, %q", code, stdout, stderr)
	}
	stdout, _, code = evictctl(t, "doctor", "-o", "json")
	if code != 0 || !json.Valid([]byte(stdout)) {
		t.Errorf("doctor -o json: %d, %q", code, stdout)
	}
}

func TestStatusIsServedOnLoopbackToo(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	// All of 127.0.0.0/8 is loopback: no other process takes a port of this address.
	pid := os.Getpid()
	address := fmt.Sprintf("127.%d.%d.%d:10255", 1+pid>>16&0x7f, pid>>8&0xff, pid&0xff)
	evictd := harness.Run(t, n.Command(sandbox.CgroupRoot(n.Group), sandbox.StatusAddress(address)))
	harness.Await(t, "the status on "+address, func() bool {
		_, _, code := evictctl(t, "status", "--status-address="+address)
		return code == 0
	})
	evictd.Signal(syscall.SIGINT)
	evictd.AwaitEnd()
}
