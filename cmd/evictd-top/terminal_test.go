package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/nodestatus"
)

// addressVariable makes the test binary the program itself.
const addressVariable = "EVICTD_TOP_TEST_ADDRESS"

func TestMain(m *testing.M) {
	if address := os.Getenv(addressVariable); address != "" {
		os.Exit(cli.Execute(context.Background(), newCommand(), []string{"--status-address", address, "--interval", "100ms"}))
	}
	os.Exit(m.Run())
}

// TestTheViewInATerminal runs the program in tmux, which draws what the program writes.
func TestTheViewInATerminal(t *testing.T) {
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip("skipped: needs Debian's package tmux, the terminal of this test")
	}
	dir, err := os.MkdirTemp("", "top") // short: it becomes a socket's path
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	var status nodestatus.Status
	load(t, "status.json", &status)
	listener, err := net.Listen("unix", filepath.Join(dir, "status"))
	require.NoError(t, err)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var document any = status
		if r.URL.Path == "/v1/explain" {
			e := nodestatus.Explanation{}
			load(t, "explanation-b.json", &e)
			document = e
		}
		_ = json.NewEncoder(w).Encode(document)
	})}}
	server.Start()
	t.Cleanup(server.Close)

	run := func(args ...string) string {
		command := exec.Command(tmux, append([]string{"-S", filepath.Join(dir, "tmux"), "-f", "/dev/null"}, args...)...)
		command.Env = append(os.Environ(), "SHELL=/bin/sh") // a user's may be nologin
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	start := func(name, noColour string) {
		run("new-session", "-d", "-s", name, "-x", "120", "-y", "24", "-e", addressVariable+"=unix:"+filepath.Join(dir, "status"), "-e", "NO_COLOR="+noColour, "-e", "LANG=C.UTF-8", self+"; sleep 60")
	}
	start("plain", "1")
	t.Cleanup(func() { _ = exec.Command(tmux, "-S", filepath.Join(dir, "tmux"), "kill-server").Run() })
	shows := func(what string) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("%q on the screen", what), func() bool { return strings.Contains(run("capture-pane", "-p"), what) })
	}
	shows("MemoryPressure=True")
	shows("sort: eviction")
	shows("evicted default/a")
	colour := regexp.MustCompile(`\x1b\[([0-9]+;)*[349][0-7][;m]`)
	if screen := run("capture-pane", "-p", "-e"); colour.MatchString(screen) {
		t.Errorf("NO_COLOR is set, and there are colours: %q", screen)
	}
	run("send-keys", "s")
	shows("sort: usage")
	run("send-keys", "Enter")
	shows("evicted if ranked before default/a")
	run("send-keys", "q")
	shows("enter explain")
	run("resize-window", "-x", "80", "-y", "16")
	shows("q quit")
	start("coloured", "")
	run("kill-session", "-t", "plain")
	shows("MemoryPressure=True")
	if screen := run("capture-pane", "-p", "-e"); !colour.MatchString(screen) {
		t.Errorf("there are no colours: %q", screen)
	}
}
