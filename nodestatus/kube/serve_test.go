package kube_test

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/kubeclient"
)

func serve(t *testing.T) *rest.Config {
	t.Helper()
	kubeconfig := os.Getenv("EVICTD_TEST_KUBECONFIG")
	if kubeconfig == "" {
		t.Skip("skipped: no embedded API")
	}
	cfg, err := kubeclient.Config(kubeconfig, "")
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
