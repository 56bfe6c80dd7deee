package serve

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/evictd/evictd/internal/require"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign(name, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign writes NAME.crt and NAME.key.
func (a *authority) sign(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = template, key
	}
	der, err1 := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	cert, err2 := x509.ParseCertificate(der)
	secret, err3 := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, errors.Join(err1, err2, err3, a.write(name+".crt", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", secret)))
	return cert, key
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

// write replaces a file, whole at once.
func (a *authority) write(file, kind string, der []byte) error {
	draft := a.path("." + file)
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	return errors.Join(os.WriteFile(draft, text, 0o600), os.Rename(draft, a.path(file)))
}

func (a *authority) server(name string) {
	a.sign(name, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
}

func (a *authority) client(name string) {
	a.sign(name, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// ask fetches as `evictd status` with flags does.
func ask(t *testing.T, address string, args ...string) error {
	t.Helper()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	client := ClientFlags(flags, "it", address)
	require.NoError(t, flags.Parse(args))
	body, err := client.Fetch(t.Context(), "/good")
	if err == nil && string(body) != "ok\n" {
		t.Errorf("got %q", body)
	}
	return err
}

func mustNotAnswer(t *testing.T, what string, err error, why string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("%s: got %v, want %q", what, err, why)
	}
}

func TestAPortAnswersOnlyClientsWithACertificateAndFollowsItsFiles(t *testing.T) {
	ours, others := newAuthority(t, "ca"), newAuthority(t, "ca")
	ours.server("server")
	ours.client("me")
	others.client("me")
	as := func(a *authority) []string {
		return []string{"--certificate-authority", ours.path("ca.crt"), "--client-certificate", a.path("me.crt"), "--client-key", a.path("me.key")}
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	files := TLSFlags(flags)
	err := flags.Parse([]string{"--" + CertFlag, ours.path("server.crt"), "--" + KeyFlag, ours.path("server.key"), "--" + ClientCAFlag, ours.path("ca.crt")})
	require.NoError(t, err)
	s, err := Listen("status-address", "127.0.0.1:0", nil, files)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("GET /good", Probe(func() bool { return true }))
	s.Handler = mux
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve(ctx, slog.New(slog.NewTextHandler(&log, nil))) })
	address := s.ports[0].Addr().String()

	if err := ask(t, address, as(ours)...); err != nil {
		t.Error(err)
	}
	mustNotAnswer(t, "a certificate of another CA", ask(t, address, as(others)...), "tls: ")
	mustNotAnswer(t, "no TLS", ask(t, address), "400 Bad Request")
	mustNotAnswer(t, "a server of another CA", ask(t, address, "--certificate-authority", others.path("ca.crt"), "--client-certificate", ours.path("me.crt"), "--client-key", ours.path("me.key")), "unknown authority")
	anonymous := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.ports[0].credentials.now.ClientCAs}}}
	if _, err := anonymous.Get("https://" + address + "/good"); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("no certificate: got %v", err)
	}

	// A new certificate without its key leaves the old pair in force.
	text := require.ReadFile(t, ours.path("server.key"))
	ours.server("server")
	renewed, err := os.ReadFile(ours.path("server.key"))
	require.NoError(t, errors.Join(err, os.WriteFile(ours.path("server.key"), text, 0o600)))
	for range 2 {
		if err := ask(t, address, as(ours)...); err != nil {
			t.Error(err)
		}
	}
	later := time.Now().Add(time.Minute) // than any tick of the filesystem's clock
	require.NoError(t, errors.Join(os.WriteFile(ours.path("server.key"), renewed, 0o600), os.Chtimes(ours.path("server.key"), later, later)))
	was := s.ports[0].credentials.now
	if err := ask(t, address, as(ours)...); err != nil || s.ports[0].credentials.now == was {
		t.Errorf("the new certificate is not used: %v", err)
	}
	// From now on others are believed, and we are not.
	require.NoError(t, os.Rename(others.path("ca.crt"), files.ClientCAFile+".new"))
	roots := as(others)
	roots[1] = ours.path("was.crt")
	require.NoError(t, errors.Join(os.Link(files.ClientCAFile, roots[1]), os.Rename(files.ClientCAFile+".new", files.ClientCAFile)))
	if err := ask(t, address, roots...); err != nil {
		t.Error(err)
	}
	mine := as(ours)
	mine[1] = roots[1]
	mustNotAnswer(t, "a CA that is no longer believed", ask(t, address, mine...), "tls: ")
	cancel()
	serving.Wait()
	for said, times := range map[string]int{"make no sense; the old ones stay": 1, "are read again": 2, "TLS handshake": 0} {
		if n := strings.Count(log.String(), said); n != times {
			t.Errorf("the log says %d times %q:\n%s", n, said, log.String())
		}
	}
}

func TestAPortThatOthersCanReachNeedsAllOfItsFiles(t *testing.T) {
	a := newAuthority(t, "ca")
	a.server("server")
	whole := TLS{a.path("server.crt"), a.path("server.key"), a.path("ca.crt")}
	other := whole
	other.KeyFile = a.path("ca.key")
	for name, c := range map[string]struct {
		address string
		files   TLS
		want    []string // none: it is taken
	}{
		"any":               {"0.0.0.0:0", TLS{}, []string{`--status-address "0.0.0.0:0": others than this host can reach it; expected --status-tls-cert-file, --status-tls-private-key-file and --status-client-ca-file beside it`}},
		"any of six":        {"[::]:0", TLS{}, []string{"others than this host"}},
		"one":               {"192.0.2.1:0", TLS{}, []string{"others than this host"}},
		"with files":        {"0.0.0.0:0", whole, nil},
		"loopback":          {"127.0.0.1:0", TLS{}, nil},
		"loopback of six":   {"[::1]:0", TLS{}, nil},
		"half":              {"127.0.0.1:0", TLS{CertFile: whole.CertFile}, []string{"--status-tls-private-key-file: expected a file", "--status-client-ca-file: expected a file"}},
		"missing":           {"127.0.0.1:0", TLS{"/none", "/none", "/none"}, []string{"--status-tls-cert-file /none", "--status-client-ca-file: open /none"}},
		"no certificates":   {"127.0.0.1:0", TLS{whole.CertFile, whole.KeyFile, a.path("ca.key")}, []string{"expected certificates in PEM"}},
		"another one's key": {"127.0.0.1:0", other, []string{"private key does not match public key"}},
	} {
		s, err := Listen("status-address", c.address, nil, &c.files)
		if err == nil {
			s.ports[0].Close()
		}
		if len(c.want) == 0 && err != nil && !strings.Contains(err.Error(), "cannot assign requested address") {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			mustNotAnswer(t, name, err, want)
		}
	}
	mustNotAnswer(t, "a unix socket", ask(t, "unix:/none", "--certificate-authority", whole.ClientCAFile), "a unix socket has no certificate")
	mustNotAnswer(t, "no pair", ask(t, "127.0.0.1:1", "--certificate-authority", whole.ClientCAFile), "--client-certificate , --client-key ")
	mustNotAnswer(t, "no CA", ask(t, "127.0.0.1:1", "--client-certificate", whole.CertFile, "--client-key", whole.KeyFile), "--certificate-authority: open : ")
	if s, err := Listen("extender-address", "0.0.0.0:0", nil, nil); err != nil {
		t.Error(err)
	} else {
		s.ports[0].Close()
	}
}
