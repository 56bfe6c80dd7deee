package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/pods"
)

const (
	mib       = 1 << 20
	namespace = "shop"
	container = "app"
)

// The leak: what it takes a second, and where it stops by itself. With what all
// pods hold that is less than the node has.
const (
	leakRate = 25 * mib
	leakMost = 150 * mib
)

// pod is one of the playground's pods: a single process in a single container.
type pod struct {
	name             string
	uid              types.UID
	requests, limits v1.ResourceList
	holds            int64 // bytes
	leaks            bool

	*process
	commands io.Writer
	replies  io.Reader
}

// newPods are the four pods. At the start the crawler exceeds its request, which
// is nothing, by most; the database uses most of all and stays within its request.
func newPods() []*pod {
	memory := func(size string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceMemory: resource.MustParse(size)}
	}
	all := v1.ResourceList{v1.ResourceMemory: resource.MustParse("220Mi"), v1.ResourceCPU: resource.MustParse("100m")}
	return []*pod{
		{name: "database", uid: "6f0c5a52-6b5c-4f0e-9d38-0d1c6a1f7e01", requests: all, limits: all, holds: 180 * mib},
		{name: "web", uid: "0b9a7d34-52c1-4a86-8e0f-51d2c4b36a02", requests: memory("96Mi"), holds: 56 * mib},
		{name: "worker", uid: "c27e1f90-3d48-4b6a-a5d7-8f9e2b074c03", requests: memory("32Mi"), holds: 40 * mib, leaks: true},
		{name: "crawler", uid: "94d3b8e6-7a1f-4c25-b0e9-2e6f5d819a04", holds: 40 * mib},
	}
}

func (p *pod) String() string { return namespace + "/" + p.name }

// manifest describes the pod to evictd.
func (p *pod) manifest() *v1.Pod {
	m := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.name, UID: p.uid},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: container, Image: "evictd-playground",
			Resources: v1.ResourceRequirements{Requests: p.requests, Limits: p.limits},
		}}},
	}
	if p.process != nil {
		// Counts where there are no cgroups.
		m.Annotations = map[string]string{pods.SessionAnnotation: strconv.Itoa(p.pid)}
	}
	return m
}

func (p *pod) class() v1.PodQOSClass { return eviction.QOSClass(p.manifest()) }

// start starts the pod's process, which does nothing before it is told to.
func (p *pod) start(ctx context.Context, self string) (err error) {
	size := func(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }
	args := []string{"pod", "--hold", size(p.holds)}
	if p.leaks {
		args = append(args, "--leak", size(leakRate), "--cap", size(leakMost))
	}
	p.process, err = start(ctx, func(cmd *exec.Cmd) (err error) {
		cmd.Stderr = os.Stderr
		if p.commands, err = cmd.StdinPipe(); err == nil {
			p.replies, err = cmd.StdoutPipe()
		}
		return err
	}, self, args...)
	if err != nil {
		return fmt.Errorf("start pod %v: %w", p, err)
	}
	return nil
}

// fill has the pod take what it holds, and waits until it has.
func (p *pod) fill() error {
	err := p.next()
	if err == nil {
		_, err = io.ReadFull(p.replies, make([]byte, 1))
	}
	if err != nil {
		return fmt.Errorf("fill pod %v: %w", p, err)
	}
	return nil
}

// next tells the process to go on.
func (p *pod) next() error {
	_, err := p.commands.Write([]byte{'\n'})
	return err
}

// podCommand is what the processes of pods run.
func podCommand() *cobra.Command {
	var hold, leak, most resource.QuantityValue
	c := &cobra.Command{Use: "pod", Hidden: true, Args: cobra.NoArgs}
	c.Flags().Var(&hold, "hold", "memory to take at once")
	c.Flags().Var(&leak, "leak", "memory to take then, a second")
	c.Flags().Var(&most, "cap", "where the leak ends")
	c.RunE = func(*cobra.Command, []string) error { return live(hold.Value(), leak.Value(), most.Value()) }
	return c
}

// live is a pod's life: at each byte from its parent it goes on, at the end of
// them it ends. It takes no memory before the first, by which time it has been
// put into its cgroup.
func live(hold, leak, most int64) error {
	if err := bound(hold + most); err != nil {
		return err
	}
	next := func() bool {
		_, err := io.ReadFull(os.Stdin, make([]byte, 1))
		return err == nil
	}
	if !next() {
		return nil
	}
	if err := take(hold); err != nil {
		return err
	}
	if _, err := os.Stdout.Write([]byte{'\n'}); err != nil || !next() {
		return nil
	}
	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	chunk := leak * int64(tick) / int64(time.Second)
	for taken := int64(0); chunk > 0 && taken+chunk <= most && take(chunk) == nil; taken += chunk {
		<-ticker.C
	}
	next()
	return nil
}

// bound limits the address space to what is there, what will be taken, and what
// the Go runtime and the C library may still reserve: whatever happens, there is an
// end to what the pod can take.
func bound(more int64) error {
	const slack = 256 * mib
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	pages, err := strconv.ParseUint(strings.Fields(string(statm))[0], 10, 40)
	if err != nil {
		return fmt.Errorf("read own size: %w", err)
	}
	size := pages*uint64(os.Getpagesize()) + uint64(more) + slack
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: size, Max: size}); err != nil {
		return fmt.Errorf("limit own memory: %w", err)
	}
	return nil
}

// take maps memory that is never given back, and touches every page of it.
func take(size int64) error {
	memory, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("take %d bytes: %w", size, err)
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	return nil
}
