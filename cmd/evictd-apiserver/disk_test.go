package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/require"
)

// smallDisk is a directory on a filesystem of its own, of 1 MiB.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.Mkdir(dir, 0o755))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("skipped: mounting a tmpfs needs root:", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
}

// TestFullDiskLosesNothing fills the disk of the manifests, kills the program with a manifest torn, and starts it
// again.
func TestFullDiskLosesNothing(t *testing.T) {
	dir := shortDir(t)
	smallDisk(t, filepath.Join(dir, "data"))
	c, client := start(t, dir)
	ctx, text := t.Context(), strings.Repeat("x", 50_000)
	make := func(client *kubernetes.Clientset, name string) error {
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": text}}, metav1.CreateOptions{})
		return err
	}
	var acknowledged []string
	var refused error
	for i := 0; refused == nil; i++ {
		name := fmt.Sprint("m", i)
		if refused = make(client, name); refused == nil {
			acknowledged = append(acknowledged, name)
		}
	}
	if !strings.Contains(refused.Error(), "no space left on device") || len(acknowledged) < 5 {
		t.Fatalf("after %d objects: %v", len(acknowledged), refused)
	}
	served := func(client *kubernetes.Clientset) {
		t.Helper()
		for _, name := range acknowledged {
			m, err := client.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil || m.Data["k"] != text {
				t.Errorf("%s: %v, %d bytes", name, err, len(m.Data["k"]))
			}
		}
	}
	served(client)
	if _, err := client.CoreV1().ConfigMaps("default").Get(ctx, fmt.Sprint("m", len(acknowledged)), metav1.GetOptions{}); err == nil {
		t.Error("what was refused is served")
	}
	update := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: acknowledged[0]}, Data: map[string]string{"k": text + text}}
	if _, err := client.CoreV1().ConfigMaps("default").Update(ctx, update, metav1.UpdateOptions{}); err == nil {
		t.Error("a larger object fits on the full disk")
	}
	served(client)
	left, err := filepath.Glob(filepath.Join(dir, "data", ".tmp", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("refused writes leave %q: %v", left, err)
	}
	manifests, err := os.ReadDir(filepath.Join(dir, "data", "configmaps", "default"))
	if err != nil || len(manifests) != len(acknowledged) {
		t.Errorf("%d manifests of %d objects: %v", len(manifests), len(acknowledged), err)
	}

	require.NoError(t, c.Process.Kill())
	c.Wait()
	torn := filepath.Join(dir, "data", "configmaps", "default", acknowledged[1]+".yaml")
	require.NoError(t, os.Truncate(torn, 20_000))
	acknowledged = append(acknowledged[:1], acknowledged[2:]...)
	_, client = start(t, dir)
	served(client)
	if info, err := os.Stat(torn); err != nil || info.Size() != 20_000 {
		t.Errorf("the torn manifest: %v, %v", info, err)
	}
	require.NoError(t, client.CoreV1().ConfigMaps("default").Delete(ctx, acknowledged[0], metav1.DeleteOptions{}))
	acknowledged = acknowledged[1:]
	require.NoError(t, make(client, "again"))
	acknowledged = append(acknowledged, "again")
	served(client)
}
