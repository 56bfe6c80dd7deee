package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/require"
)

// TestCampaignSize reports what the program takes: memory at the start and with a cluster, pods bound a
// second by 32 clients, and how long it takes to start again.
func TestCampaignSize(t *testing.T) {
	campaign.Only(t)
	type cluster struct{ nodes, pods int }
	for _, c := range campaign.Size([]cluster{{1000, 5000}, {10_000, 10_000}}, []cluster{{10, 20}}) {
		t.Run(fmt.Sprintf("%d nodes", c.nodes), func(t *testing.T) { measure(t, c.nodes, c.pods) })
	}
}

func measure(t *testing.T, nodes, pods int) {
	dir := shortDir(t)
	binary := filepath.Join(dir, "evictd-apiserver")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Makefile builds it
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v %s", err, out)
	}
	program, _ := startProgram(t, binary, dir)
	t.Log("at the start:", taken(t, program.Process.Pid))
	config, err := kubeclient.Config("", "unix:"+filepath.Join(dir, "api.sock"))
	require.NoError(t, err)
	config.QPS, config.ContentType = -1, "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	ctx := t.Context()
	parallel(t, nodes, func(i int) error {
		room := v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("32Gi"), v1.ResourcePods: resource.MustParse("110")}
		_, err := client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), Labels: map[string]string{v1.LabelHostname: fmt.Sprint("n", i)}},
			Status: v1.NodeStatus{Capacity: room, Allocatable: room}}, metav1.CreateOptions{})
		return err
	})
	parallel(t, pods, func(i int) error {
		_, err := client.CoreV1().Pods("default").Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Labels: map[string]string{"app": "web"}},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "web:1", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}}}}}}, metav1.CreateOptions{})
		return err
	})
	begun := time.Now()
	parallel(t, pods, func(i int) error {
		return client.CoreV1().Pods("default").Bind(ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}, Target: v1.ObjectReference{Kind: "Node", Name: fmt.Sprint("n", i%nodes)}}, metav1.CreateOptions{})
	})
	t.Logf("%.0f pods bound a second", float64(pods)/time.Since(begun).Seconds())
	t.Logf("with %d nodes and %d pods: %s", nodes, pods, taken(t, program.Process.Pid))
	program.Process.Kill()
	program.Wait()
	begun = time.Now()
	program, _ = startProgram(t, binary, dir)
	t.Logf("started again in %v: %s", time.Since(begun).Round(10*time.Millisecond), taken(t, program.Process.Pid))
}

// parallel does n things by 32 clients.
func parallel(t *testing.T, n int, do func(i int) error) {
	var (
		next atomic.Int64
		all  sync.WaitGroup
	)
	for range 32 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// taken is the processor time of a process and what it has resident.
func taken(t *testing.T, pid int) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	const user, ticksPerSecond = 11, 100 // the place of utime after the name of the program; stime follows
	times := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[user : user+2]
	var ticks [2]int
	for i, text := range times {
		ticks[i], err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	found := []string{fmt.Sprintf("%.2f s of processor time", float64(ticks[0]+ticks[1])/ticksPerSecond)}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "RssAnon") {
			found = append(found, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(found, ", ")
}
