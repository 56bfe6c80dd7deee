package node_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

// strangeConfig is a configuration, and what evictd makes of it: it runs with warnings, or ends with exit code 2.
type strangeConfig struct {
	name  string
	file  string   // the configuration file; empty for none
	args  []string // more flags
	want  []string // parts of what check-config prints
	fault []string // parts of the one fault of check-config and run; nil if evictd runs
}

var strangeConfigs = []strangeConfig{
	{name: "a kubelet's file of a later version", file: ofKubelet + "ofALaterVersion: {a: b}\nevictionHard: {memory.available: 64Mi}\n",
		want: []string{"memory.available", "64Mi", `unknown field "ofALaterVersion": ignored`}},
	{name: "a key twice in a kubelet's file", file: ofKubelet + "evictionHard: {memory.available: 1Mi}\nevictionHard: {memory.available: 64Mi}\n",
		want: []string{"64Mi", `key "evictionHard" already set`}},
	{name: "metadata in a kubelet's file", file: ofKubelet + "metadata: {name: a}\nevictionHard: {memory.available: 64Mi}\n",
		want: []string{"64Mi", `unknown field "metadata"`}},
	{name: "a kubelet's endpoint without a scheme", file: ofKubelet + "containerRuntimeEndpoint: /run/evictd-none.sock\nevictionHard: {memory.available: 64Mi}\n",
		want: []string{"64Mi"}},
	{name: "a flag twice adds up", args: []string{"--eviction-hard=memory.available<64Mi", "--eviction-hard=pid.available<5%"},
		want: []string{"64Mi", "pid.available", "5%"}},
	{name: "half a byte", file: ofEvictd + "evictionHard: {memory.available: 500m}\n",
		want: []string{`"500m" is no whole number and is read as 1`, "less than a page"}},
	{name: "an unknown field of evictd's own", file: ofEvictd + "ofALaterVersion: 1\n", fault: []string{"config.yaml: ", `unknown field "ofALaterVersion"`}},
	{name: "a misspelt mode", file: ofEvictd + "mode: natif\n", fault: []string{"config.yaml: mode: ", "natif"}},
	{name: "an address with a host name", file: ofEvictd + "statusAddress: localhost:9464\n", fault: []string{"config.yaml: statusAddress ", "localhost:9464"}},
	{name: "an address that others reach", file: ofEvictd + "statusAddress: 0.0.0.0:9464\n", fault: []string{"config.yaml: statusAddress ", "others than this host can reach it"}},
	{name: "a server with a misspelt scheme", file: ofEvictd + "server: htp://10.0.0.1\n", fault: []string{"config.yaml: server htp://10.0.0.1: ", "http://"}},
	{name: "a kubeconfig that is missing", file: ofEvictd + "kubeconfig: /evictd-none\n", fault: []string{"config.yaml: kubeconfig /evictd-none: "}},
	{name: "a threshold above the memory", file: ofEvictd + "evictionHard: {memory.available: 1Ti}\n", fault: []string{"config.yaml: evictionHard[memory.available]: ", "not below the capacity"}},
	{name: "a soft eviction of a file is named by its field", file: ofEvictd + "softEviction: perhaps\n", fault: []string{`config.yaml: softEviction "perhaps"`}},
	{name: "a soft eviction of a flag is named by its flag", file: ofEvictd, args: []string{"--soft-eviction=perhaps"}, fault: []string{`evictd: --soft-eviction "perhaps"`}},
	{name: "an unknown suffix", file: ofEvictd + "evictionHard: {memory.available: 5x}\n", fault: []string{"config.yaml: evictionHard[memory.available]: ", "5x"}},
}

const (
	ofKubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	ofEvictd  = "apiVersion: evictd.io/v1alpha1\nkind: EvictdConfiguration\n"
)

// rule: M.194
// rule: M.195
func TestStrangeConfigurationsAreReadAsTheKubeletReadsThemAndCheckConfigAgreesWithRun(t *testing.T) {
	t.Parallel()
	for _, c := range strangeConfigs {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			flags := c.args
			file := filepath.Join(n.Dir, "config.yaml")
			require.NoError(t, os.WriteFile(file, []byte(max(c.file, ofEvictd)), 0o644))
			if c.file != "" {
				flags = append(slices.Clip(flags), sandbox.Config(file))
			}
			run := n.Command(append([]string{sandbox.CgroupRoot(n.Group)}, flags...)...)
			if strings.Contains(c.file, "statusAddress") {
				run.Args = slices.DeleteFunc(run.Args, func(arg string) bool { return strings.HasPrefix(arg, "--status-address=") })
			}
			check := n.Command()
			check.Args = append([]string{check.Args[0], "check-config", file}, run.Args[2:]...)
			check.Args = slices.DeleteFunc(check.Args, func(arg string) bool { return strings.HasPrefix(arg, "--config=") })
			stdout, stderr, code := harness.Finish(t, check)
			if c.fault == nil {
				for _, part := range c.want {
					if !strings.Contains(stdout, part) {
						t.Errorf("check-config has not %q:\n%s%s", part, stdout, stderr)
					}
				}
				if code != 0 {
					t.Errorf("check-config ends with %d: %s", code, stderr)
				}
				n.Evictd(flags...).AwaitCondition(v1.NodeMemoryPressure, memoryTaint, false)
				return
			}
			_, said, ended := harness.Finish(t, run)
			for what, text := range map[string]string{"check-config": stderr, "run": said} {
				for _, part := range c.fault {
					if !strings.Contains(text, part) {
						t.Errorf("%s has not %q:\n%s", what, part, text)
					}
				}
			}
			if code != 2 || ended != 2 {
				t.Errorf("check-config ends with %d, run with %d; want 2", code, ended)
			}
		})
	}
}

// TestEvictdStartsWithTheConfigurationThatItAcceptedLast spoils the file of an evictd between two starts.
//
// rule: M.199
func TestEvictdStartsWithTheConfigurationThatItAcceptedLast(t *testing.T) {
	good := ofEvictd + "evictionHard: {memory.available: 33Mi}\n"
	for name, c := range map[string]struct {
		file  string // after the first start; empty removes it
		args  []string
		fault string // that evictd ends with; empty if it starts
		want  string // part of what is said of the file; empty if that is accepted
	}{
		"the same":                   {file: good},
		"another":                    {file: ofEvictd + "evictionHard: {memory.available: 34Mi}\n"},
		"no file":                    {want: "no such file"},
		"no YAML":                    {file: "kind: [", want: "config.yaml: "},
		"no text":                    {file: "\xff\xfe\x00", want: "config.yaml: "},
		"two documents":              {file: good + "---\n" + good, want: "found 2"},
		"another kind":               {file: "apiVersion: v1\nkind: Pod\n", want: `kind "Pod"`},
		"an unknown field":           {file: good + "evictionHart: {}\n", want: "evictionHart"},
		"a misspelt mode":            {file: good + "mode: natif\n", want: "natif"},
		"a threshold above capacity": {file: ofEvictd + "evictionHard: {memory.available: 1Ti}\n", want: "not below the capacity"},
		"a missing kubeconfig":       {file: good + "kubeconfig: /evictd-none\n", want: "/evictd-none"},
		"a faulty flag":              {file: good, args: []string{"--soft-eviction=perhaps"}, fault: "--soft-eviction"},
		"a faulty flag and file":     {file: "kind: [", args: []string{"--soft-eviction=perhaps"}, fault: "--soft-eviction"},
		"without that start":         {file: "kind: [", args: []string{"--state-dir=/evictd-none"}, fault: "config.yaml: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			path := filepath.Join(n.Dir, "config.yaml")
			require.NoError(t, os.WriteFile(path, []byte(good), 0o644))
			n.Evictd(sandbox.Config(path)).Stop()
			if c.file == "" {
				require.NoError(t, os.Remove(path))
			} else {
				require.NoError(t, os.WriteFile(path, []byte(c.file), 0o644))
			}
			args := append([]string{sandbox.CgroupRoot(n.Group), sandbox.Config(path)}, c.args...)
			if c.fault != "" {
				if _, stderr, code := harness.Finish(t, n.Command(args...)); code != 2 || !strings.Contains(stderr, c.fault) {
					t.Errorf("exit code %d: %s", code, stderr)
				}
				return
			}
			d := n.Evictd(args[1:]...)
			s := d.Await("the signals", func(s *nodestatus.Status) bool { return len(s.Signals) > 0 })
			threshold := "33Mi"
			if c.want == "" && c.file != good {
				threshold = "34Mi"
			}
			for _, signal := range s.Signals {
				if signal.Name == memorySignal && signal.Thresholds[0].Quantity != threshold {
					t.Errorf("the threshold is %s, expected %s", signal.Thresholds[0].Quantity, threshold)
				}
			}
			refused := c.want != ""
			if (s.ConfigurationRefused != "") != refused || !strings.Contains(s.ConfigurationRefused, c.want) || strings.Contains(d.Log(), "refused") != refused {
				t.Errorf("refused %q, expected %q; log:\n%s", s.ConfigurationRefused, c.want, d.Log())
			}
			require.NoError(t, os.WriteFile(path, []byte(good), 0o644))
			d.Signal(syscall.SIGHUP)
			d.Await("the file to be accepted again", func(s *nodestatus.Status) bool { return s.ConfigurationRefused == "" })
		})
	}
}

// TestAChangedConfigurationLeavesEvictdItsSockets has the service manager hold the status address at the start after a change,
// at which evictd checks the file first.
func TestAChangedConfigurationLeavesEvictdItsSockets(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	path := filepath.Join(n.Dir, "config.yaml")
	configure := func(threshold string) {
		require.NoError(t, os.WriteFile(path, []byte(ofEvictd+"evictionHard: {memory.available: "+threshold+"}\n"), 0o644))
	}
	configure("33Mi")
	n.Evictd(sandbox.Config(path)).Stop()
	configure("34Mi")
	held, err := net.ListenUnix("unix", &net.UnixAddr{Name: n.Socket(), Net: "unix"})
	require.NoError(t, err)
	held.SetUnlinkOnClose(false)
	file, err := held.File()
	require.NoError(t, err)
	require.NoError(t, held.Close())
	defer file.Close()
	evictd := n.Command(sandbox.CgroupRoot(n.Group), sandbox.Config(path))
	cmd := exec.Command("/bin/sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`}, evictd.Args...)...)
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), "LISTEN_FDS=1"), []*os.File{file}
	d := n.Protect(cmd, nil)
	d.Await("the threshold", func(s *nodestatus.Status) bool {
		return slices.ContainsFunc(s.Signals, func(s nodestatus.SignalStatus) bool {
			return s.Name == memorySignal && s.Thresholds[0].Quantity == "34Mi"
		})
	})
}
