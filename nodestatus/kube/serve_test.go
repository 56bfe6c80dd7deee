package kube_test

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/embeddedapi/apitest"
	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/require"
)

// serve is the API server that EVICTD_TEST_KUBECONFIG names, or an embedded one
// of the test's own.
func serve(t *testing.T) *rest.Config {
	t.Helper()
	kubeconfig, server := os.Getenv("EVICTD_TEST_KUBECONFIG"), ""
	if kubeconfig == "" {
		server = apitest.URL(t)
	}
	cfg, err := kubeclient.Config(kubeconfig, server)
	require.NoError(t, err)
	return cfg
}
