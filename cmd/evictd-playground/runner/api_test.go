package runner_test

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/kubeclient"
)

func api(t *testing.T) kubernetes.Interface {
	cfg, err := kubeclient.Config(os.Getenv("SCRATCH_KUBECONFIG"), "")
	if err != nil {
		t.Skip(err)
	}
	return kubernetes.NewForConfigOrDie(cfg)
}
