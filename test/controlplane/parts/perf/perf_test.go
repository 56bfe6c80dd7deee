// Package perf runs cases of Kubernetes' scheduler_perf by a scheduler that is a program:
// the scheduler that scheduler_perf has in its own process schedules no pod, for its
// profile has another name.
package perf

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	_ "k8s.io/component-base/logs/json/register"
	benchmark "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
	"sigs.k8s.io/yaml"
)

// The variables that say what runs. PATH has an etcd.
const (
	sourcesVariable   = "SCHEDULER_PERF_SOURCES"   // directory of the module k8s.io/kubernetes in the module cache
	caseVariable      = "SCHEDULER_PERF_CASE"      // directory/case/workload, such as misc/SchedulingBasic/500Nodes
	schedulerVariable = "SCHEDULER_PERF_SCHEDULER" // program and arguments; KUBECONFIG stands for the path of a kubeconfig
)

const idleConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: idle}]
`

func TestMain(m *testing.M) {
	if err := benchmark.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}

func BenchmarkPerfScheduling(b *testing.B) {
	dir, sources := b.TempDir(), os.Getenv(sourcesVariable)
	// Where the API server of tests looks for its certificates when it is built by
	// -trimpath.
	b.Setenv("TEST_SRCDIR", filepath.Dir(filepath.Dir(sources)))
	b.Setenv("TEST_WORKSPACE", ".")
	if err := copyTemplates(dir, filepath.Join(sources, "test/integration/scheduler_perf")); err != nil {
		b.Fatal(err)
	}
	topic, testCase, workload := split(dir, os.Getenv(caseVariable))
	if workload == "" {
		b.Fatalf("%s=%s: expected directory/case/workload", caseVariable, os.Getenv(caseVariable))
	}
	b.Chdir(filepath.Join(dir, topic))
	if err := choose(config, testCase, workload); err != nil {
		b.Fatal(err)
	}
	// The topic is part of the name of a file.
	benchmark.RunBenchmarkPerfScheduling(b, config, strings.ReplaceAll(topic, "/", "_"), nil, benchmark.WithPrepareFn(start))
}

// config is the file of the cases of a directory.
const config = "performance-config.yaml"

// split splits directory/case/workload. Directories with cases have subdirectories with
// cases, and names of workloads have slashes.
func split(dir, name string) (topic, testCase, workload string) {
	for {
		next, rest, _ := strings.Cut(name, "/")
		if _, err := os.Stat(filepath.Join(dir, topic, next, config)); next == "" || err != nil {
			testCase, workload, _ = strings.Cut(name, "/")
			return topic, testCase, workload
		}
		topic, name = filepath.Join(topic, next), rest
	}
}

// copyTemplates copies the YAML files, which name each other by relative paths.
func copyTemplates(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o600)
	})
}

// choose leaves a workload of a case in a file, without its threshold, which is that of
// another machine.
func choose(file, testCase, workload string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var cases []map[string]any
	if err := yaml.Unmarshal(text, &cases); err != nil {
		return err
	}
	for _, c := range cases {
		workloads, _ := c["workloads"].([]any)
		for _, w := range workloads {
			fields, _ := w.(map[string]any)
			if c["name"] != testCase || fields["name"] != workload {
				continue
			}
			delete(fields, "threshold")
			fields["labels"] = []string{"performance"}
			c["workloads"], c["schedulerConfigPath"] = []any{w}, "idle.yaml"
			if text, err = yaml.Marshal([]any{c}); err != nil {
				return err
			}
			if err := os.WriteFile("idle.yaml", []byte(idleConfig), 0o600); err != nil {
				return err
			}
			return os.WriteFile(file, text, 0o600)
		}
	}
	return fmt.Errorf("%s has no case %s with a workload %s", file, testCase, workload)
}

// start runs the scheduler on the API server of a case until the case ends.
func start(ctx ktesting.TContext) error {
	kubeconfig := filepath.Join(ctx.TempDir(), "kubeconfig")
	if err := write(kubeconfig, ctx.RESTConfig()); err != nil {
		return err
	}
	args := strings.Fields(strings.ReplaceAll(os.Getenv(schedulerVariable), "KUBECONFIG", kubeconfig))
	cmd := exec.Command(args[0], args[1:]...)
	log, err := os.Create(filepath.Join(ctx.TempDir(), "log"))
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	ctx.CleanupCtx(func(ctx ktesting.TContext) {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // how it ends is not measured
		log.Close()
	})
	return nil
}

func write(kubeconfig string, c *rest.Config) error {
	const name = "perf"
	return clientcmd.WriteToFile(api.Config{
		Clusters: map[string]*api.Cluster{name: {
			Server: c.Host, CertificateAuthority: c.CAFile, CertificateAuthorityData: c.CAData, TLSServerName: c.ServerName,
		}},
		AuthInfos:      map[string]*api.AuthInfo{name: {Token: c.BearerToken}},
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, kubeconfig)
}
