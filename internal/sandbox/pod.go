package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/workload"
)

// Spec is what a pod of one container asks for; zero values ask for nothing.
type Spec struct {
	Request, Limit string // memory; with a limit the pod is Guaranteed unless it requests something else
	Priority       int32
	Grace          int64             // seconds; 0 is the default of the API
	EmptyDirs      map[string]string // size limits, "" for none, by the volume's name
	Annotations    map[string]string
}

// UID is the i-th of a node, in the form of the API server's.
func UID(i int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)) }

// Manifest describes a pod of one container, c.
func (s Spec) Manifest(name string, uid types.UID) *v1.Pod {
	container := v1.Container{Name: "c"}
	if s.Request != "" {
		container.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(s.Request)}
	}
	if s.Limit != "" {
		container.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(s.Limit), v1.ResourceCPU: resource.MustParse("1")}
	}
	m := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, UID: uid, Annotations: s.Annotations},
		Spec:       v1.PodSpec{Priority: &s.Priority, Containers: []v1.Container{container}},
	}
	if s.Grace > 0 {
		m.Spec.TerminationGracePeriodSeconds = &s.Grace
	}
	for name, size := range s.EmptyDirs {
		source := &v1.EmptyDirVolumeSource{}
		if size != "" {
			source.SizeLimit = new(resource.MustParse(size))
		}
		m.Spec.Volumes = append(m.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: source}})
	}
	return m
}

// Pod is the process of a pod's container. Its program is a workload, see package
// workload, which ends with this process.
type Pod struct {
	*process.Process
	Group string // cgroup of the pod

	orders, answers *os.File
	lines           *bufio.Scanner // of answers
	unanswered      int
}

// Start runs a program as the workload of a pod, in the cgroup of its container. It is in
// the cgroup before it carries out any order. Nil credentials are those of this process.
func (n *Node) Start(group string, as *syscall.Credential, program string, args ...string) (*Pod, error) {
	p := &Pod{Group: group}
	container, cmd := n.Container(group), exec.Command(program, args...)
	if n.hasUnits() {
		cmd = inScope(container, program, args)
	} else if err := n.Cgroups.Create(container, cgroup.Limits{}); err != nil {
		return nil, err
	}
	stdin, orders, err1 := os.Pipe()
	answers, stdout, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	defer stdin.Close()
	defer stdout.Close()
	cmd.Env = append(os.Environ(), workload.Variable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	var err error
	if p.Process, err = process.Start(cmd); err != nil {
		return nil, errors.Join(err, orders.Close(), answers.Close())
	}
	p.orders, p.answers, p.lines = orders, answers, bufio.NewScanner(answers)
	if n.hasUnits() {
		return p, nil
	}
	// A process that was killed once it was in the first of several hierarchies has run there.
	if err := n.Cgroups.Add(container, p.PID()); err != nil && !errors.Is(err, syscall.ESRCH) {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close kills the process, where it still runs.
func (p *Pod) Close() {
	p.Kill()
	_, _ = p.orders.Close(), p.answers.Close() // again they fail
}

// Send gives an order and does not wait for the answer.
func (p *Pod) Send(order string) error {
	p.unanswered++
	_, err := fmt.Fprintln(p.orders, order)
	return err
}

// Do gives an order and waits until it and those before were carried out.
func (p *Pod) Do(order string) error {
	if err := p.Send(order); err != nil {
		return err
	}
	for ; p.unanswered > 0; p.unanswered-- {
		if !p.lines.Scan() {
			return errors.Join(errors.New("the process has ended"), p.lines.Err())
		}
		if answer := p.lines.Text(); answer != "ok" {
			return errors.New(answer)
		}
	}
	return nil
}
