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
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		if c.ProcessState == nil {
			c.Process.Kill()
			c.Wait()
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
