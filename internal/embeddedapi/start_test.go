package embeddedapi

import (
	"fmt"
	"log/slog"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
)

// BenchmarkStart starts with the manifests of 2,000 pods.
func BenchmarkStart(b *testing.B) {
	const pods = 2000
	cfg := Config{Data: b.TempDir(), Log: slog.New(slog.DiscardHandler)}
	a, err := New(cfg)
	require.NoError(b, err)
	for i := range pods {
		pod := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Namespace: "default", Labels: map[string]string{"app": "web"}},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "web:1", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}}}}}}
		_, err := a.create(b.Context(), a.kindOf("Pod"), pod, false)
		require.NoError(b, err)
	}
	require.NoError(b, a.Close())
	for b.Loop() {
		a, err := New(cfg)
		require.NoError(b, err)
		if objects, _ := a.kindOf("Pod").table.List(""); len(objects) != pods {
			b.Fatalf("%d pods", len(objects))
		}
		require.NoError(b, a.Close())
	}
}
