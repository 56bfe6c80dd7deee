package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/controlplane/scheduler"
)

// nodes are in two zones: specs of spreading need two of them, each with more than one
// node.
var nodes = map[string]string{"hollow-1": "a", "hollow-2": "a", "hollow-3": "b", "hollow-4": "b"}

// runner runs a suite.
type runner struct {
	programs map[string]string // paths, by name
	dir      string            // of files that are removed at the end
	logs     string
	specs    string // expression of Ginkgo
	root     string // of the source tree
}

// run runs the suite by a scheduler in a cluster of its own.
func (r runner) run(ctx context.Context, s suite, by string) (got report, err error) {
	r.dir, r.logs = filepath.Join(r.dir, by), filepath.Join(r.logs, by)
	if err := errors.Join(os.MkdirAll(r.dir, 0o700), os.MkdirAll(r.logs, 0o700)); err != nil {
		return got, err
	}
	server, err := apiserver.NewKubeAPIServer(append(s.flags(), "--runtime-config="+s.apis)...)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	grant := exec.CommandContext(ctx, r.programs["kubectl"], "--kubeconfig="+server.Kubeconfig(apiserver.Admin), "apply", "--server-side", "--filename="+filepath.Join(r.root, "deploy/rbac"))
	if out, err := grant.CombinedOutput(); err != nil {
		return got, fmt.Errorf("%s: %w\n%s", grant, err, out)
	}
	command, page, err := scheduler.Command(r.programs[by], server.Kubeconfig(identities[by]), r.dir, s.flags()...)
	if err != nil {
		return got, err
	}
	for _, command := range append(r.cluster(s, server), command) {
		p, err := r.start(command)
		if err != nil {
			return got, err
		}
		defer p.Kill()
	}
	if err := ready(ctx, server); err != nil {
		return got, err
	}
	if got, err = r.runSpecs(ctx, s, server); err != nil {
		return got, err
	}
	got.counts, err = page.Counts()
	return got, err
}

// identities are the schedulers', each with the rights that it has in a cluster.
var identities = map[string]string{scheduler.Kube: apiserver.Kube, scheduler.Evictd: apiserver.Scheduler}

// flags are those of a program of Kubernetes in a cluster of the suite.
func (s suite) flags() []string {
	if s.gates == "" {
		return nil
	}
	return []string{"--feature-gates=" + s.gates}
}

// cluster are the commands of what runs beside kube-apiserver and a scheduler, with the
// administrator's rights.
func (r runner) cluster(s suite, server *apiserver.Server) []*exec.Cmd {
	admin := sandbox.Kubeconfig(server.Kubeconfig(apiserver.Admin))
	commands := []*exec.Cmd{exec.Command(r.programs["kube-controller-manager"], append(s.flags(), admin, "--leader-elect=false", "--secure-port=0",
		"--cert-dir="+r.dir, "--root-ca-file="+server.File("pki/ca.crt"), "--service-account-private-key-file="+server.File("pki/ca.key"))...)}
	for name, zone := range nodes {
		commands = append(commands, exec.Command(r.programs["hollow-node"], admin, "-name="+name, "-zone="+zone, "-dir="+filepath.Join(r.dir, name)))
	}
	return commands
}

// start starts a program whose output is a file of the logs.
func (r runner) start(command *exec.Cmd) (*process.Process, error) {
	log, err := os.CreateTemp(r.logs, filepath.Base(command.Path)+".*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	return process.Start(command)
}

// ready returns once all nodes are Ready.
func ready(ctx context.Context, server *apiserver.Server) error {
	client, err := server.Client(apiserver.Admin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wait.Limit)
	defer cancel()
	var last error
	if err := wait.That(ctx, func() bool {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if last = err; err != nil {
			return false
		}
		count := 0
		for _, node := range list.Items {
			for _, c := range node.Status.Conditions {
				if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
					count++
				}
			}
		}
		last = fmt.Errorf("%d of %d nodes are ready", count, len(nodes))
		return count == len(nodes)
	}); err != nil {
		return last
	}
	return nil
}

// runSpecs runs the specs, in the same order by either scheduler.
func (r runner) runSpecs(ctx context.Context, s suite, server *apiserver.Server) (report, error) {
	file := filepath.Join(r.logs, "report.json")
	e2e := exec.Command(r.programs["e2e"], sandbox.Kubeconfig(server.Kubeconfig(apiserver.Admin)), "--provider=skeleton",
		"--ginkgo.seed=1", "--ginkgo.no-color", "--ginkgo.timeout=2h", "--ginkgo.json-report="+file, "--ginkgo.label-filter="+s.labels, "--ginkgo.focus="+r.specs)
	p, err := r.start(e2e)
	if err != nil {
		return report{}, err
	}
	select {
	case <-p.Ended(): // its exit code is in the report
	case <-ctx.Done():
		p.Kill()
		return report{}, ctx.Err()
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return report{}, fmt.Errorf("e2e wrote no report: %w", err)
	}
	var reports []report
	if err := json.Unmarshal(text, &reports); err != nil {
		return report{}, err
	}
	return reports[0], nil
}
