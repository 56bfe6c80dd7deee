package kube_test

import (
	"cmp"
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/localapi"
)

// serve is the API server that EVICTD_TEST_KUBECONFIG names, or an embedded one
// of the test's own.
func serve(t *testing.T) *rest.Config {
	t.Helper()
	kubeconfig, server := os.Getenv("EVICTD_TEST_KUBECONFIG"), ""
	if kubeconfig == "" {
		server = embedded(t)
	}
	cfg, err := kubeclient.Config(kubeconfig, server)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func embedded(t *testing.T) (url string) {
	t.Helper()
	api, err := localapi.New(localapi.Config{Data: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var ended error
	running.Go(func() { ended = api.Run(ctx) })
	server := httptest.NewServer(api)
	t.Cleanup(func() {
		cancel()
		running.Wait()
		server.Close()
		if err := cmp.Or(ended, api.Close()); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}
