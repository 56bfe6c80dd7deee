package serve

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// playHeld makes the test binary a program that a service manager starts: it
// serves on the addresses named, one of which it is to hold.
const playHeld = "EVICTD_SERVE_TEST_HELD"

func TestMain(m *testing.M) {
	if addresses := os.Getenv(playHeld); addresses != "" {
		if err := serveHeld(strings.Fields(addresses)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serveHeld(addresses []string) error {
	os.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid())) // which the parent cannot know
	held, files, err := TakeHeld()
	if err != nil {
		return err
	}
	if text, err := io.ReadAll(files["d"]); err != nil || string(text) != "opened" || len(files) != 1 {
		return fmt.Errorf("%v has %q: %w", files, text, err)
	}
	for _, address := range addresses {
		s, err := Listen("status-address", address, held, &TLS{})
		if err != nil {
			return err
		}
		conn, err := s.ports[0].Accept()
		if err != nil {
			return err
		}
		fmt.Fprint(conn, "held")
		conn.Close()
	}
	held.Release(slog.New(slog.NewTextHandler(os.Stdout, nil)))
	return nil
}

func TestSocketsOfTheServiceManagerAreServedByTheirAddress(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.sock")
	unix, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer unix.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer tcp.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer other.Close()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), playHeld+"=unix:"+path+" "+tcp.Addr().String(), "LISTEN_FDS=4", "LISTEN_FDNAMES=a:b:c:d")
	for _, l := range []interface{ File() (*os.File, error) }{unix.(*net.UnixListener), tcp.(*net.TCPListener), other.(*net.TCPListener)} {
		f, err := l.File()
		require.NoError(t, err)
		defer f.Close()
		c.ExtraFiles = append(c.ExtraFiles, f)
	}
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("opened"), 0o600))
	opened, err := os.Open(text)
	require.NoError(t, err)
	defer opened.Close()
	c.ExtraFiles = append(c.ExtraFiles, opened)
	var out strings.Builder
	c.Stdout, c.Stderr = &out, os.Stderr
	require.NoError(t, c.Start())
	for _, l := range []net.Listener{unix, tcp} {
		conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
		require.NoError(t, err)
		if answer, err := io.ReadAll(conn); err != nil || string(answer) != "held" {
			t.Errorf("%s: %q, %v", l.Addr(), answer, err)
		}
		conn.Close()
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "not used here") || !strings.Contains(out.String(), other.Addr().String()) {
		t.Errorf("the socket that is not used is not reported: %s", out.String())
	}
	if _, err := os.Stat(path); err != nil {
		t.Error("the service manager's socket is gone:", err)
	}
}
