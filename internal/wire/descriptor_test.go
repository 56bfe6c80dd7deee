package wire

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// packets is a pair of sequenced-packet sockets.
func packets(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	ends := [2]*net.UnixConn{}
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "end")
		defer file.Close()
		conn, err := net.FileConn(file)
		require.NoError(t, err)
		ends[i] = conn.(*net.UnixConn)
		t.Cleanup(func() { conn.Close() })
	}
	return ends[0], ends[1]
}

func TestConnectionsArePassedAndFaultsExplained(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	defer listener.Close()
	ours, theirs := packets(t)
	var mu sync.Mutex
	var fault error
	var giveUp atomic.Bool // the request that is being read
	held := make(chan struct{}, 1)
	var serving sync.WaitGroup
	serving.Go(func() {
		_ = ServeDials(ours, func(string, bool) (*os.File, string, error) {
			if giveUp.Swap(false) {
				if err := theirs.SetReadDeadline(time.Unix(1, 0)); err != nil {
					return nil, "", err
				}
			}
			<-held
			mu.Lock()
			defer mu.Unlock()
			if fault != nil {
				return nil, "", fault
			}
			conn, err := net.Dial("unix", listener.Addr().String())
			if err != nil {
				return nil, "", err
			}
			defer conn.Close()
			file, err := conn.(*net.UnixConn).File()
			return file, "unix:somewhere", err
		})
	})
	d := NewDialer(theirs)
	patient, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()

	held <- struct{}{}
	conn, endpoint, err := d.Dial(patient, "unix:last", true)
	if err != nil || endpoint != "unix:somewhere" {
		t.Fatalf("%v, endpoint %q", err, endpoint)
	}
	accepted, err := listener.Accept()
	require.NoError(t, err)
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := accepted.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	conn.Close()
	accepted.Close()

	giveUp.Store(true)
	if _, _, err := d.Dial(patient, "unix:last", true); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a slow answer: %v, want the deadline exceeded", err)
	}
	held <- struct{}{} // answers what was given up
	mu.Lock()
	fault = errors.New("connect unix:somewhere: " + strings.Repeat("long ", 1000))
	mu.Unlock()
	held <- struct{}{}
	if _, _, err := d.Dial(patient, "unix:last", true); err == nil || !strings.HasPrefix(err.Error(), "connect unix:somewhere: long") {
		t.Errorf("got %v, want evictd's own words", err)
	}
	theirs.Close()
	serving.Wait()
	if _, _, err := d.Dial(patient, "unix:last", true); !errors.Is(err, net.ErrClosed) {
		t.Errorf("over a closed line: %v", err)
	}
}
