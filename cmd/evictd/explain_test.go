package main

import (
	"bytes"
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// explaining serves the documents that the publisher's tests hold.
func explaining(t *testing.T) (address string, about func(pod string) string) {
	t.Helper()
	document := func(pod string) string {
		file := "../../eviction/publish/testdata/explanation"
		if pod != "" {
			file += "-" + pod
		}
		text := require.ReadFile(t, file+".json")
		return string(text)
	}
	all, one := document(""), document("b")
	return serving(t, "unix", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("pod") {
		case "":
			w.Write([]byte(all))
		case "b":
			w.Write([]byte(one))
		default:
			http.Error(w, "no pod x runs on node n1", http.StatusNotFound)
		}
	}), document
}

func TestExplainShowsEveryComparison(t *testing.T) {
	address, document := explaining(t)
	for _, pod := range []string{"", "b"} {
		args, file := []string{"explain", "--status-address", address}, "testdata/explain.txt"
		if pod != "" {
			args, file = append(args, pod), "testdata/explain-"+pod+".txt"
		}
		text := say(t, "", args...)
		if text.code != 0 || text.err != "" {
			t.Fatalf("%+v", text)
		}
		golden.Check(t, file, text.out)
		if got := say(t, "", append(args, "-o", "json")...); got != (said{0, document(pod), ""}) {
			t.Errorf("as JSON: %+v", got)
		}
	}
}

func TestExplainOfAPodThatIsNotHereFails(t *testing.T) {
	address, _ := explaining(t)
	want := said{1, "", "evictd: evictd at " + address + ": 404 Not Found: no pod x runs on node n1\n"}
	if got := say(t, "", "explain", "x", "--status-address", address); got != want {
		t.Errorf("got %+v", got)
	}
}

func TestTheShellCompletesPodsOfTheRunningDaemon(t *testing.T) {
	address, _ := explaining(t)
	got := say(t, "", "__complete", "explain", "--status-address", address, "")
	if got.code != 0 {
		t.Errorf("got %+v", got)
	}
	golden.Check(t, "testdata/completion.txt", got.out)
}

func TestTheShellCompletesPodsThatWereEvicted(t *testing.T) {
	address := serving(t, "unix", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`{"stories":[{"pod":"shop/worker","signal":"memory.available"}]}`))
	})
	if got := say(t, "", "__complete", "why", "--status-address", address, ""); got.out != "shop/worker\tmemory.available\n:4\n" {
		t.Errorf("got %+v", got)
	}
}

// TestARunningDaemonExplains asks a real one, which touches nothing.
func TestARunningDaemonExplains(t *testing.T) {
	dir := t.TempDir()
	address := "unix:" + filepath.Join(dir, "status.sock")
	ctx, stop := context.WithCancel(context.Background())
	var log bytes.Buffer
	ended := make(chan int)
	go func() {
		ended <- execute(ctx, []string{"run", "--dry-run", "--mode", "observe", "--node-memory", "1Gi", "--node-name", "vm", "--state-dir", filepath.Join(dir, "state"),
			"--cri-endpoint", "none", "--status-address", address}, strings.NewReader(""), &log, &log)
	}()
	defer func() {
		stop()
		if code := <-ended; code != 0 || t.Failed() {
			t.Errorf("the daemon ended with %d and said\n%s", code, log.String())
		}
	}()
	var got said
	wait.Until(t, "the daemon to answer", func() bool {
		got = say(t, "", "explain", "--status-address", address)
		return got.code == 0
	})
	if !strings.Contains(got.out, "memory.available: ") || !strings.Contains(got.out, "no pod may be evicted") {
		t.Errorf("got %+v", got)
	}
	if nobody := say(t, "", "explain", "default/a", "--status-address", address); !strings.HasSuffix(nobody.err, ": 404 Not Found: no pod default/a runs on node vm\n") {
		t.Errorf("got %+v", nobody)
	}
	if status := say(t, "", "status", "-o", "yaml", "--status-address", address); !strings.Contains(status.out, "mode: observe\n") {
		t.Errorf("got %+v", status)
	}
}
