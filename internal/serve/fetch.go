package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/evictd/evictd/internal/cli"
)

// The flags of a Client, the last three as kubectl's.
const (
	addressFlag = "status-address"
	caFlag      = "certificate-authority"
	certFlag    = "client-certificate"
	keyFlag     = "client-key"
)

// Client asks a running program at its status address.
type Client struct{ program, address, ca, cert, key string }

// ClientFlags adds the flags that say where a program answers, which errors name.
func ClientFlags(flags *pflag.FlagSet, program, address string) *Client {
	c := &Client{program: program}
	flags.StringVar(&c.address, addressFlag, address, "of the running "+program+": unix:PATH or IP:PORT")
	flags.StringVar(&c.ca, caFlag, "", "certificate authority of an IP:PORT with TLS, PEM")
	flags.StringVar(&c.cert, certFlag, "", "certificate to show there, PEM")
	flags.StringVar(&c.key, keyFlag, "", "its private key, PEM")
	return c
}

// Arguments are the flags of a Client that asks the same.
func (c *Client) Arguments() []string {
	return []string{"--" + addressFlag, c.address, "--" + caFlag, c.ca, "--" + certFlag, c.cert, "--" + keyFlag, c.key}
}

// Check finds what is wrong with the flags. The error is the caller's.
func (c *Client) Check() error {
	_, err := c.transport()
	return err
}

func (c *Client) transport() (*http.Transport, error) {
	network, at, err := split(addressFlag, c.address)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at)
	}}
	if c.ca == "" && c.cert == "" && c.key == "" {
		return t, nil
	}
	if network == "unix" {
		return nil, cli.BadInput(fmt.Errorf("--%s %q: a unix socket has no certificate; expected IP:PORT beside --%s, --%s and --%s", addressFlag, c.address, caFlag, certFlag, keyFlag))
	}
	roots, unknown := readCA(caFlag, c.ca)
	pair, unpaired := tls.LoadX509KeyPair(c.cert, c.key)
	if unpaired != nil {
		unpaired = fmt.Errorf("--%s %s, --%s %s: %w", certFlag, c.cert, keyFlag, c.key, unpaired)
	}
	if err := errors.Join(unknown, unpaired); err != nil {
		return nil, cli.BadInput(err)
	}
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}
	return t, nil
}

// advice is printed when no program answers at an address.
func (c *Client) advice(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "; be root, or in the group evictd"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("; start it (systemctl start %s), or say where it is with --%s", c.program, addressFlag)
	}
	return ""
}

// Fetch gets a document, with escapes for what does not print.
func (c *Client) Fetch(ctx context.Context, path string) ([]byte, error) {
	return c.send(ctx, http.MethodGet, path, nil, Timeout)
}

// Post sends a body and gets a document as Fetch. A body that the program refuses is the
// caller's error. The program may answer other requests before, each within Timeout.
func (c *Client) Post(ctx context.Context, path string, body []byte) ([]byte, error) {
	return c.send(ctx, http.MethodPost, path, bytes.NewReader(body), 3*Timeout)
}

func (c *Client) send(ctx context.Context, method, path string, content io.Reader, timeout time.Duration) ([]byte, error) {
	transport, err := c.transport()
	if err != nil {
		return nil, err
	}
	at := "http://localhost" // wherever it is: see ofThisHost
	if transport.TLSClientConfig != nil {
		at = "https://" + c.address // which the certificate has to name
	}
	request, err := http.NewRequestWithContext(ctx, method, at+path, content)
	if err != nil {
		return nil, err
	}
	client := http.Client{Timeout: timeout, Transport: transport}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no %s answers at %s: %w%s", c.program, c.address, errors.Unwrap(err), c.advice(err))
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s at %s: %s: %s", c.program, c.address, response.Status, strings.TrimSpace(string(body)))
		if s := response.StatusCode; method == http.MethodPost && (s == http.StatusBadRequest || s == http.StatusRequestEntityTooLarge) {
			err = cli.BadInput(err)
		}
	}
	return printable(body), err
}
