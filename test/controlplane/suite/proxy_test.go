package suite_test

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/require"
)

// proxy stands between a program and the API server, speaks to the server as an
// identity, and can answer in its place.
type proxy struct {
	*httptest.Server
	mu    sync.Mutex
	fault func(http.ResponseWriter, *http.Request) bool
}

// between makes a proxy for an identity.
func (a *api) between(identity string) *proxy {
	a.t.Helper()
	config, err := a.Config(identity)
	require.NoError(a.t, err)
	transport, err := rest.TransportFor(config)
	require.NoError(a.t, err)
	target, err := url.Parse(config.Host)
	require.NoError(a.t, err)
	p := &proxy{}
	pass := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		fault := p.fault
		p.mu.Unlock()
		if fault == nil || !fault(w, r) {
			pass.ServeHTTP(w, r)
		}
	}))
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	a.t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// inject lets a function answer requests from now on; it says of each whether it
// did. Nil ends that.
func (p *proxy) inject(fault func(http.ResponseWriter, *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// refuse answers with a Status of failure.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(failure(code, reason))
}

func failure(code int, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "a fault of the test",
	}
}
