package harness_test

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/harness"
)

// TestAStatusIsReadFromABusyEvictd has a server that ends the first connection, and answers the
// second request 503.
func TestAStatusIsReadFromABusyEvictd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	var requests atomic.Int64
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch requests.Add(1) {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			http.Error(w, "busy", http.StatusServiceUnavailable)
		default:
			fmt.Fprint(w, `{"node": "n"}`)
		}
	})}
	go server.Serve(listener)
	defer server.Close()
	if status := (&harness.Evictd{Process: harness.At(t, socket)}).Status(); status.Node != "n" {
		t.Errorf("the status is %+v", status)
	}
}
