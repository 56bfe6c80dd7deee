package extender

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// maxAnswer bounds the size of a response in bytes; a response for 5,000 nodes may
// have 50 MB.
const maxAnswer = 256 << 20

// call posts a request and reads the response, within the configured timeout.
func (e *Extender) call(ctx context.Context, verb string, args, result any) error {
	body, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("encode %s: %w", verb, err)
	}
	url := strings.TrimRight(e.cfg.URLPrefix, "/") + "/" + verb
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := e.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("post %s: status %s; expected 200", url, response.Status)
	}
	answer := io.LimitReader(response.Body, maxAnswer)
	if err := json.NewDecoder(answer).Decode(result); err != nil {
		return fmt.Errorf("read response of %s: %w", url, err)
	}
	_, err = io.Copy(io.Discard, answer) // the connection is reused
	return err
}

// request is a request of an attempt.
type request struct {
	extender *Extender
	verb     string
	asked    map[string]bool // names of nodes
	found    bool            // by a later run of the attempt
	done     chan struct{}
	// The response; valid when done is closed.
	result any
	err    error
}

// Answered is closed when the response is there.
func (r *request) Answered() <-chan struct{} { return r.done }

// ask sends a request about rows, with pointers to the arguments and the result. A further
// run of the attempt finds the request, if it was about one of its rows.
func (e *Extender) ask(c *framework.Cycle, verb string, rows []nodetable.Row, args func() any, result any) *request {
	usable := func(sent framework.Request) bool {
		r, is := sent.(*request)
		if !is || r.extender != e || r.verb != verb {
			return false
		}
		r.found = true
		return slices.ContainsFunc(rows, func(row nodetable.Row) bool { return r.asked[c.Table.Node(row).Name.Value()] })
	}
	send := func(ctx context.Context) framework.Request {
		r := &request{extender: e, verb: verb, asked: make(map[string]bool, len(rows)), done: make(chan struct{}), result: result}
		for _, row := range rows {
			r.asked[c.Table.Node(row).Name.Value()] = true
		}
		args := args()
		go func() {
			defer close(r.done)
			r.err = e.call(ctx, verb, args, result)
		}()
		return r
	}
	return c.Ask(usable, send).(*request)
}

// newClient makes the HTTP client of an extender. It verifies the server unless the
// configuration disables it; kube-scheduler does not verify without a CA.
func newClient(cfg *config.Extender) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 128 // bindings run concurrently
	var err error
	if transport.TLSClientConfig, err = tlsConfig(&cfg.TLS); err != nil {
		return nil, err
	}
	return &http.Client{
		Transport:     transport,
		Timeout:       cfg.HTTPTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

func tlsConfig(cfg *configv1.ExtenderTLSConfig) (*tls.Config, error) {
	ca, errCA := content("caFile", cfg.CAData, cfg.CAFile)
	cert, errCert := content("certFile", cfg.CertData, cfg.CertFile)
	key, errKey := content("keyFile", cfg.KeyData, cfg.KeyFile)
	if err := errors.Join(errCA, errCert, errKey); err != nil {
		return nil, err
	}
	own := &tls.Config{ServerName: cfg.ServerName, InsecureSkipVerify: cfg.Insecure}
	if ca != nil {
		own.RootCAs = x509.NewCertPool()
		if !own.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("tlsConfig: no certificate in %s", cmp.Or(cfg.CAFile, "caData"))
		}
	}
	if cert != nil || key != nil {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("tlsConfig: client certificate: %w", err)
		}
		own.Certificates = []tls.Certificate{pair}
	}
	return own, nil
}

// content is the data, or else the content of the file; nil: neither is set.
func content(field string, data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("tlsConfig.%s: %w", field, err)
	}
	return data, nil
}
