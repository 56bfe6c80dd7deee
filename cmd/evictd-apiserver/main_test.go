package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// runAsProgram makes the test binary the program itself.
const runAsProgram = "EVICTD_APISERVER_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runAsProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// start runs the program on a directory and waits until it serves.
func start(t *testing.T, dir string) (*exec.Cmd, *kubernetes.Clientset) {
	t.Helper()
	return startProgram(t, os.Args[0], dir)
}

func startProgram(t *testing.T, program, dir string, flags ...string) (*exec.Cmd, *kubernetes.Clientset) {
	t.Helper()
	socket := filepath.Join(dir, "api.sock")
	c := exec.Command(program, append(flags, "--data", filepath.Join(dir, "data"), "--listen", "unix:"+socket)...)
	c.Env = append(os.Environ(), runAsProgram+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer log.Close()
	c.Stderr = log
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		if c.ProcessState == nil {
			c.Process.Kill()
			c.Wait()
		}
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("log of process %d and those before it:\n%s", c.Process.Pid, text)
		}
	})
	cfg, err := kubeclient.Config("", "unix:"+socket)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	wait.Until(t, "the API to be served", func() bool {
		_, err := client.Discovery().ServerVersion()
		return err == nil
	})
	return c, client
}

// execute runs a command line in this process and returns its exit code.
func execute(t *testing.T, errs *bytes.Buffer, args ...string) int {
	t.Helper()
	c := newCommand()
	c.SetErr(errs)
	c.SetOut(errs)
	return cli.Execute(t.Context(), c, args)
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "apiserver") // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestWhatWasAcknowledgedSurvivesSIGKILL(t *testing.T) {
	dir, acknowledged := shortDir(t), map[string]string{}
	for round := range 3 {
		c, client := start(t, dir)
		namespaces := client.CoreV1().Namespaces()
		for name, version := range acknowledged {
			if n, err := namespaces.Get(t.Context(), name, metav1.GetOptions{}); err != nil || n.ResourceVersion != version {
				t.Fatalf("round %d: %s was acknowledged as %s and is %v, %v", round, name, version, n.ResourceVersion, err)
			}
		}
		var (
			mu      sync.Mutex
			writing sync.WaitGroup
		)
		for writer := range 4 {
			writing.Go(func() {
				for i := 0; ; i++ {
					name := fmt.Sprintf("n-%d-%d-%d", round, writer, i)
					n, err := namespaces.Create(context.Background(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
					if err != nil {
						return // it is gone
					}
					mu.Lock()
					acknowledged[name] = n.ResourceVersion
					enough := len(acknowledged) >= 50*(round+1)
					mu.Unlock()
					if enough {
						c.Process.Signal(syscall.SIGKILL)
					}
				}
			})
		}
		writing.Wait()
		c.Wait()
	}
}

// TestDamagedRecordOfTheJournalIsKept damages an acknowledged change in the journal. The start keeps it, names the
// file, and serves the state of the manifest and the other changes.
func TestDamagedRecordOfTheJournalIsKept(t *testing.T) {
	dir := shortDir(t)
	manifest := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "data/configmaps/default/damaged.yaml"))
		return string(text)
	}
	c, client := start(t, dir)
	maps := client.CoreV1().ConfigMaps("default")
	create := func(name string) {
		_, err := maps.Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": "before"}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	create("damaged")
	last := ""
	for i, caught := 0, false; !caught; i++ { // until the kill is before the manifest
		wait.Until(t, "the manifest to be written", func() bool { return strings.Contains(manifest(), "k: before"+last) })
		value := fmt.Sprintf("before%04d", i)
		_, err := maps.Update(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "damaged"}, Data: map[string]string{"k": value}}, metav1.UpdateOptions{})
		require.NoError(t, err)
		create(fmt.Sprint("other-", i))
		require.NoError(t, c.Process.Kill())
		c.Wait()
		if !strings.Contains(manifest(), value) {
			caught = damage(t, filepath.Join(dir, "data/.journal"), value)
		} else {
			last = value[len("before"):]
		}
		c, client = start(t, dir)
		maps = client.CoreV1().ConfigMaps("default")
		if _, err := maps.Get(t.Context(), fmt.Sprint("other-", i), metav1.GetOptions{}); err != nil {
			t.Error("the change after it:", err)
		}
	}
	found, err := maps.Get(t.Context(), "damaged", metav1.GetOptions{})
	require.NoError(t, err)
	if found.Data["k"] != "before"+last || !strings.Contains(manifest(), "k: before"+last) {
		t.Errorf("found %q, want the state of the manifest, before%s:\n%s", found.Data, last, manifest())
	}
	kept, err := filepath.Glob(filepath.Join(dir, "data/.journal/unread-*"))
	if err != nil || len(kept) != 1 || !bytes.Contains(require.ReadFile(t, kept[0]), []byte("BEFORE")) {
		t.Fatalf("kept %q, %v", kept, err)
	}
	if log := string(require.ReadFile(t, filepath.Join(dir, "log"))); !strings.Contains(log, kept[0]) {
		t.Errorf("the log does not name %s:\n%s", kept[0], log)
	}
}

// damage changes a value in the files of a journal, and says whether it is there.
func damage(t *testing.T, journal, value string) (done bool) {
	t.Helper()
	files, err := os.ReadDir(journal)
	require.NoError(t, err)
	for _, f := range files {
		path := filepath.Join(journal, f.Name())
		text := require.ReadFile(t, path)
		if changed := bytes.ReplaceAll(text, []byte(value), []byte(strings.ToUpper(value))); !bytes.Equal(text, changed) {
			require.NoError(t, os.WriteFile(path, changed, 0o640))
			done = true
		}
	}
	return done
}

func TestTermEndsItInOrderDespiteAWatch(t *testing.T) {
	c, client := start(t, shortDir(t))
	w, err := client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer w.Stop()
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	for range w.ResultChan() { // ends with the server
	}
	if err := c.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

func TestAddressesOfOtherHostsAreRefused(t *testing.T) {
	for _, address := range []string{"0.0.0.0:8080", ":8080", "10.0.0.1:8080", "localhost:8080", "[::]:8080", "unix:api.sock", "api.sock"} {
		var errs bytes.Buffer
		code := execute(t, &errs, "--data", t.TempDir(), "--listen", address)
		if text := errs.String(); code != cli.ExitBadInput || !strings.Contains(text, "--listen "+address) || !strings.Contains(text, "expected unix:") {
			t.Errorf("%s: exit %d with %q", address, code, text)
		}
	}
}

func TestBadFlagsAreTheCallersFault(t *testing.T) {
	for _, args := range [][]string{{"--listn", "x"}, {"extra"}} {
		var errs bytes.Buffer
		if code := execute(t, &errs, args...); code != cli.ExitBadInput {
			t.Errorf("%v: exit %d with %q", args, code, errs.String())
		}
	}
}

func TestSocketInUseIsLeftToItsOwner(t *testing.T) {
	dir := shortDir(t)
	start(t, dir)
	var errs bytes.Buffer
	code := execute(t, &errs, "--data", t.TempDir(), "--listen", "unix:"+filepath.Join(dir, "api.sock"))
	if code != cli.ExitBadInput || !strings.Contains(errs.String(), "in use by another process") {
		t.Errorf("exit %d with %q", code, errs.String())
	}
	errs.Reset()
	code = execute(t, &errs, "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0")
	if code != cli.ExitFault || !strings.Contains(errs.String(), "in use by another process") {
		t.Errorf("the same data: exit %d with %q", code, errs.String())
	}
}
