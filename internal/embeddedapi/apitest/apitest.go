// Package apitest gives tests an embedded API of their own.
package apitest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/embeddedapi"
)

// New serves an empty API on loopback until the test ends.
func New(t testing.TB) kubernetes.Interface {
	t.Helper()
	return kubernetes.NewForConfigOrDie(&rest.Config{Host: URL(t), QPS: -1})
}

// URL is where such an API is, behind what stands around it.
func URL(t testing.TB, around ...func(api http.Handler) http.Handler) string {
	t.Helper()
	api, err := embeddedapi.New(embeddedapi.Config{Data: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- api.Run(ctx) }()
	var handler http.Handler = api
	for _, put := range around {
		handler = put(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
		if err := api.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}
