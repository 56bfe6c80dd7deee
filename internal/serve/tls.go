package serve

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/spf13/pflag"

	"github.com/evictd/evictd/internal/cli"
)

// The flags that name the files of a TLS.
const (
	CertFlag     = "status-tls-cert-file"
	KeyFlag      = "status-tls-private-key-file"
	ClientCAFlag = "status-client-ca-file"
)

// The usage of these flags.
const (
	CertUsage     = "certificate of a status address that is a port, PEM; with it only clients that have one are answered"
	KeyUsage      = "its private key, PEM"
	ClientCAUsage = "certificate authority of clients, PEM; all three files are read again when they change"
)

// TLS names the files by which a port is served to others than this host: all of
// them, or none.
type TLS struct{ CertFile, KeyFile, ClientCAFile string }

// TLSFlags adds the flags of a TLS.
func TLSFlags(flags *pflag.FlagSet) *TLS {
	t := &TLS{}
	flags.StringVar(&t.CertFile, CertFlag, "", CertUsage)
	flags.StringVar(&t.KeyFile, KeyFlag, "", KeyUsage)
	flags.StringVar(&t.ClientCAFile, ClientCAFlag, "", ClientCAUsage)
	return t
}

// protects reports whether a port gets TLS, and refuses a port without TLS if other hosts can reach it.
func (t *TLS) protects(flag, at string) (bool, error) {
	var faults []error
	for _, f := range []struct{ flag, file string }{{CertFlag, t.CertFile}, {KeyFlag, t.KeyFile}, {ClientCAFlag, t.ClientCAFile}} {
		if f.file == "" {
			faults = append(faults, fmt.Errorf("--%s: expected a file", f.flag))
		}
	}
	if len(faults) == 3 {
		host, _, _ := net.SplitHostPort(at)
		if net.ParseIP(host).IsLoopback() {
			return false, nil
		}
		return false, cli.BadInput(fmt.Errorf("--%s %q: others than this host can reach it; expected --%s, --%s and --%s beside it, or unix:PATH, a loopback IP:PORT or none", flag, at, CertFlag, KeyFlag, ClientCAFlag))
	}
	if len(faults) > 0 {
		return false, cli.BadInput(errors.Join(faults...))
	}
	return true, nil
}

// Check reads the files, if there are any.
func (t *TLS) Check() error {
	if *t == (TLS{}) {
		return nil
	}
	_, err := t.load()
	return err
}

// secure puts TLS before a port, if it has any.
func (t *TLS) secure(flag, at string) (*credentials, error) {
	if is, err := t.protects(flag, at); !is {
		return nil, err
	}
	return t.load()
}

func (t *TLS) load() (*credentials, error) {
	c := &credentials{files: *t, log: slog.New(slog.DiscardHandler)}
	var err error
	if c.now, err = c.read(); err != nil {
		return nil, cli.BadInput(err)
	}
	return c, nil
}

// credentials are the certificates of a port, as their files are. exporter-toolkit reads
// them for each connection from a file of its own format, refuses all connections while
// one of them is wrong, has no bound of connections, and adds 5 MB to evictd.
type credentials struct {
	files TLS
	log   *slog.Logger // to be set before the first connection

	mu     sync.Mutex
	stamps [3]os.FileInfo // when last read
	now    *tls.Config
}

// listen answers TLS alone on a port.
func (c *credentials) listen(port net.Listener) net.Listener {
	return tls.NewListener(port, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: c.config})
}

// config is for a connection that begins. Files that make no sense, as when one is
// new and another is not, leave the old ones in force.
func (c *credentials) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.changed() {
		return c.now, nil
	}
	if now, err := c.read(); err != nil {
		c.log.Warn("the certificates of the status address have changed and make no sense; the old ones stay", "error", err)
	} else {
		c.log.Info("the certificates of the status address are read again")
		c.now = now
	}
	return c.now, nil
}

func (c *credentials) paths() [3]string {
	return [3]string{c.files.CertFile, c.files.KeyFile, c.files.ClientCAFile}
}

func (c *credentials) changed() bool {
	for i, path := range c.paths() {
		now, err := os.Stat(path)
		was := c.stamps[i]
		if err != nil && was == nil {
			continue
		}
		if err != nil || was == nil || !os.SameFile(was, now) || !was.ModTime().Equal(now.ModTime()) || was.Size() != now.Size() {
			return true
		}
	}
	return false
}

func (c *credentials) read() (*tls.Config, error) {
	for i, path := range c.paths() { // first: what changes meanwhile is read again
		c.stamps[i], _ = os.Stat(path) // reading reports a missing file
	}
	pair, unpaired := tls.LoadX509KeyPair(c.files.CertFile, c.files.KeyFile)
	if unpaired != nil {
		unpaired = fmt.Errorf("--%s %s, --%s %s: %w", CertFlag, c.files.CertFile, KeyFlag, c.files.KeyFile, unpaired)
	}
	clients, unknown := readCA(ClientCAFlag, c.files.ClientCAFile)
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	}, errors.Join(unpaired, unknown)
}

// readCA reads the certificates of a flag's file.
func readCA(flag, path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--%s %s: expected certificates in PEM", flag, path)
	}
	return pool, nil
}
