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
	"k8s.io/client-go/util/cert"

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

// run runs the suite in a cluster of its own.
func (r runner) run(ctx context.Context, s suite, c column) (got report, err error) {
	r.dir, r.logs = filepath.Join(r.dir, c.name), filepath.Join(r.logs, c.name)
	if err := errors.Join(os.MkdirAll(r.dir, 0o700), os.MkdirAll(r.logs, 0o700)); err != nil {
		return got, err
	}
	server, authority, err := r.startServer(ctx, s, c)
	if server != nil {
		defer func() { err = errors.Join(err, server.Stop()) }()
	}
	if err != nil {
		return got, err
	}
	command, page, err := scheduler.Command(r.programs[c.scheduler], server.Kubeconfig(identities[c.scheduler]), r.dir, s.flags()...)
	if err != nil {
		return got, err
	}
	for _, command := range append(r.cluster(s, server, authority), command) {
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

// startServer starts the API server of a column and returns flags by which kube-controller-manager
// knows its certificate authority, too. A kube-apiserver knows the rights of evictd-scheduler.
func (r runner) startServer(ctx context.Context, s suite, c column) (server *apiserver.Server, authority []string, err error) {
	if c.embedded {
		if server, err = apiserver.NewEmbedded(r.programs[evictdAPIServer]); err != nil {
			return nil, nil, err
		}
		// It is reached without TLS, but specs wait for a certificate in each namespace.
		file := server.File("ca.crt")
		chain, _, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
		if err == nil {
			err = os.WriteFile(file, chain, 0o600)
		}
		return server, []string{"--root-ca-file=" + file}, err
	}
	if server, err = apiserver.NewKubeAPIServer(append(s.flags(), "--runtime-config="+s.apis)...); err != nil {
		return nil, nil, err
	}
	grant := exec.CommandContext(ctx, r.programs["kubectl"], "--kubeconfig="+server.Kubeconfig(apiserver.Admin), "apply", "--server-side", "--filename="+filepath.Join(r.root, "deploy/rbac"))
	if out, err := grant.CombinedOutput(); err != nil {
		return server, nil, fmt.Errorf("%s: %w\n%s", grant, err, out)
	}
	return server, []string{"--root-ca-file=" + server.File("pki/ca.crt"), "--service-account-private-key-file=" + server.File("pki/ca.key")}, nil
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

// cluster are the commands of what runs beside an API server and a scheduler, with the
// administrator's rights.
func (r runner) cluster(s suite, server *apiserver.Server, authority []string) []*exec.Cmd {
	admin := sandbox.Kubeconfig(server.Kubeconfig(apiserver.Admin))
	commands := []*exec.Cmd{exec.Command(r.programs["kube-controller-manager"], append(append(s.flags(), authority...), admin, "--leader-elect=false", "--secure-port=0", "--cert-dir="+r.dir)...)}
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

// runSpecs runs the specs, in the same order in every column.
func (r runner) runSpecs(ctx context.Context, s suite, server *apiserver.Server) (report, error) {
	file := filepath.Join(r.logs, "report.json")
	args := []string{sandbox.Kubeconfig(server.Kubeconfig(apiserver.Admin)), "--provider=skeleton",
		"--ginkgo.seed=1", "--ginkgo.no-color", "--ginkgo.timeout=2h", "--ginkgo.json-report=" + file, "--ginkgo.label-filter=" + s.labels}
	focus := s.texts
	if r.specs != "" {
		focus = []string{r.specs}
	}
	for _, text := range focus {
		args = append(args, "--ginkgo.focus="+text)
	}
	for _, reason := range reasons {
		if reason.text != nil {
			args = append(args, "--ginkgo.skip="+reason.text.String())
		}
	}
	e2e := exec.Command(r.programs["e2e"], args...)
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
