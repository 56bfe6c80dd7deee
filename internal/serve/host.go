package serve

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// listenerAddress is the context key of the listener's address. With TLS there is none:
// there certificates identify the client.
type listenerAddress struct{}

func base(l net.Listener) context.Context {
	if _, plain := l.(*bounded); plain {
		return context.WithValue(context.Background(), listenerAddress{}, l.Addr())
	}
	return context.Background()
}

// ofThisHost refuses requests that reach an address of this host alone under
// another host's name. Only a browser sends those, for a page from elsewhere whose
// name was made to lead here (DNS rebinding), and which would read the answers. It refuses
// as well what a page of another origin requests below /v1 (Fetch Metadata, Sec-Fetch-Site).
func ofThisHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(listenerAddress{}).(net.Addr)
		if !hostBelongs(r.Host, at) {
			http.Error(w, "this address answers to localhost and to IP addresses", http.StatusMisdirectedRequest)
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); strings.HasPrefix(r.URL.Path, "/v1/") && (site == "cross-site" || site == "same-site") {
			http.Error(w, "this is for the page of the same address", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostBelongs says whether a Host header may come with a request to an address. No
// name is better than another behind a unix socket, which a browser reaches through
// a forwarded port only; but none of the DNS belongs there.
func hostBelongs(host string, at net.Addr) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "localhost" || host == "" {
		return true
	}
	switch at := at.(type) {
	case *net.UnixAddr:
		return !strings.Contains(host, ".")
	case *net.TCPAddr:
		return !at.IP.IsLoopback()
	}
	return true
}
