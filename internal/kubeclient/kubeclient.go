// Package kubeclient makes the client configuration of a program's flags. It never
// connects.
package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/evictd/evictd/internal/kubeclient/address"
)

// Config is how to reach the API server of --kubeconfig and --server: that of
// the file, the URL or unix:PATH of the embedded API, the URL with the file's
// credentials, or where both are empty that of the cluster around this pod.
// The client does not limit its own rate: the server does. A token in a file is read again
// once a minute, and at the next request after one that was refused with 401. A connection on which
// nothing arrives any more is closed within seconds. Errors name the flag and what was expected.
func Config(kubeconfig, server string) (*rest.Config, error) {
	cfg, err := config(kubeconfig, server)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	noticeSilence()
	if !rest.IsConfigTransportTLS(*cfg) {
		cfg.Transport = inTheClear(cfg)
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return leavesSilent{next} }) // the innermost
	if file := cfg.BearerTokenFile; file != "" {
		// client-go's own reads the file once a minute, after a 401 as well.
		cfg.BearerToken, cfg.BearerTokenFile = "", ""
		cfg.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(file)))
	}
	return cfg, nil
}

func config(kubeconfig, server string) (*rest.Config, error) {
	if err := address.Check(kubeconfig, server); err != nil {
		return nil, err
	}
	if socket, is := strings.CutPrefix(server, "unix:"); is {
		return overSocket(socket), nil
	}
	if kubeconfig == "" && server == "" {
		cfg, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no API server: expected --kubeconfig FILE or --server URL, or to run in a pod with a service account")
		}
		if err != nil {
			return nil, fmt.Errorf("read the service account: %w", err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags(server, kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)
	}
	return cfg, nil
}

// overSocket reaches the embedded API, whose socket is its access control.
func overSocket(path string) *rest.Config {
	return &rest.Config{
		Host: "http://localhost",
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}
}

// idleConnections are kept for later requests. By TLS client-go sends all requests over one
// connection; else there is one for each request at a time, of which it keeps 2, or 25 to a socket.
const idleConnections = 128

func inTheClear(cfg *rest.Config) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.DisableCompression = 0, idleConnections, cfg.DisableCompression
	t.DialContext = (&net.Dialer{Timeout: 30 * time.Second, KeepAliveConfig: keepAlive}).DialContext
	if cfg.Dial != nil {
		t.DialContext = cfg.Dial
	}
	if cfg.Proxy != nil {
		t.Proxy = cfg.Proxy
	}
	return t
}
