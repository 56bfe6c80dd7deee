// Package apitest gives the playground's tests an embedded API of their own.
package apitest

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/localapi"
)

// New serves an empty API on loopback until the test ends.
func New(t testing.TB) kubernetes.Interface {
	t.Helper()
	api, err := localapi.New(localapi.Config{Data: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- api.Run(ctx) }()
	server := httptest.NewServer(api)
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
	cfg, err := kubeclient.Config("", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
