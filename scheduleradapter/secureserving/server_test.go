package secureserving

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/util/cert"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// listen starts a server outside of a cluster; the handler answers served.
func listen(t *testing.T, args ...string) (address string) {
	t.Helper()
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address = free.Addr().String()
	require.NoError(t, free.Close())
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o := Flags(flags)
	require.NoError(t, flags.Parse(append(args, "--bind-address=127.0.0.1", "--secure-port="+port)))
	require.NoError(t, o.Validate())
	s, err := Listen(o, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return address
}

// insecure does not verify the server.
var insecure = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}

func TestWithoutAnAPIServerOnlyTheAllowedPathsAreServed(t *testing.T) {
	address := listen(t, "--authorization-always-allow-paths=/livez,/open/*")
	client := http.Client{Transport: &http.Transport{TLSClientConfig: insecure, DisableKeepAlives: true}}
	for path, want := range map[string]int{"/livez": 200, "/open/door": 200, "/livez/ping": 403, "/readyz": 403, "/metrics": 403} {
		response, err := client.Get("https://" + address + path)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		response.Body.Close()
		if response.StatusCode != want || want == 200 != (string(body) == "served") {
			t.Errorf("%s: %s %s, want %d", path, response.Status, body, want)
		}
	}
}

func TestSilentConnectionsDoNotKeepProbesOut(t *testing.T) {
	address := listen(t)
	for _, from := range []string{"127.0.0.2", "127.0.0.1"} {
		silent := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		for range maxConnections + 50 {
			conn, err := silent.Dial("tcp", address)
			require.NoError(t, err)
			defer conn.Close()
		}
		mustBeAlive(t, address, "silent ones from "+from)
	}
	for range maxConnections + 10 {
		kept := &http.Transport{TLSClientConfig: insecure.Clone(), ForceAttemptHTTP2: true}
		defer kept.CloseIdleConnections()
		response, err := (&http.Client{Transport: kept}).Get("https://" + address + "/livez")
		require.NoError(t, err)
		response.Body.Close()
	}
	mustBeAlive(t, address, "kept ones")
}

func mustBeAlive(t *testing.T, address, beside string) {
	t.Helper()
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: insecure, DisableKeepAlives: true}}
	for range 3 {
		response, err := client.Get("https://" + address + "/livez")
		if err != nil {
			t.Fatalf("beside %s: %v", beside, err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("beside %s: %s", beside, response.Status)
		}
	}
}

// rule: S8.36
func TestANewCertificateIsUsed(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write := func() (written []byte) {
		t.Helper()
		chain, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
		require.NoError(t, err)
		for file, text := range map[string][]byte{certFile: chain, keyFile: key} {
			require.NoError(t, os.WriteFile(file+".new", text, 0o600))
			require.NoError(t, os.Rename(file+".new", file))
		}
		block, _ := pem.Decode(chain)
		return block.Bytes
	}
	first := write()
	address := listen(t, "--tls-cert-file="+certFile, "--tls-private-key-file="+keyFile)
	shown := func() []byte {
		t.Helper()
		conn, err := tls.Dial("tcp", address, insecure)
		require.NoError(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Raw
	}
	if !bytes.Equal(shown(), first) {
		t.Error("another certificate than that of the file is used")
	}
	second := write()
	wait.Until(t, "the new certificate to be used", func() bool { return bytes.Equal(shown(), second) })
}
