// Conformance runs Kubernetes' own tests of scheduling and of the API by Kubernetes, by
// evictd-scheduler and by evictd-apiserver, and prints them side by side: the end-to-end
// specs, each in a cluster of an API server, a scheduler, kube-controller-manager and hollow
// nodes; then cases of scheduler_perf.
//
// The exit code is 1 where a program of evictd fails a spec that Kubernetes passes, or
// something does not run, and 0 where a program of Kubernetes is missing, which it says.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/controlplane/scheduler"
)

// conformanceRun is what the flags say.
type conformanceRun struct {
	suites *regexp.Regexp
	by     *regexp.Regexp // of columns
	specs  string         // expression of Ginkgo
	cases  *regexp.Regexp // of scheduler_perf
	rounds int
	logs   string
}

var all = regexp.MustCompile("")

func main() {
	r := conformanceRun{suites: all, by: all, cases: all}
	flag.Func("suites", "run only the suites whose name this regular expression matches; - for none", func(text string) (err error) {
		r.suites, err = regexp.Compile(text)
		return err
	})
	flag.Func("by", "run the specs only by the columns of the table whose name this regular expression matches", func(text string) (err error) {
		r.by, err = regexp.Compile(text)
		return err
	})
	flag.StringVar(&r.specs, "specs", "", "run only the specs whose text this regular expression matches")
	flag.Func("cases", "measure only the cases of scheduler_perf that this regular expression matches; - for none", func(text string) (err error) {
		r.cases, err = regexp.Compile(text)
		return err
	})
	flag.IntVar(&r.rounds, "rounds", 1, "how often each case is measured by each scheduler")
	flag.StringVar(&r.logs, "logs", "", "keep the logs of all programs in this directory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	differ, err := r.run(ctx)
	if unavailable, is := errors.AsType[*apiserver.UnavailableError](err); is {
		fmt.Println("skipped:", unavailable)
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
	}
	if err != nil || differ {
		stop()
		os.Exit(1)
	}
}

// run says whether a program of evictd fails a spec that Kubernetes passes.
func (r *conformanceRun) run(ctx context.Context) (differ bool, err error) {
	programs := map[string]string{}
	needed := []string{"controlplane", "kube-controller-manager", "kubectl", "hollow-node", "e2e", scheduler.Kube}
	measures := slices.ContainsFunc(cases, r.cases.MatchString)
	if measures {
		needed = append(needed, "etcd", "scheduler_perf")
	}
	for _, name := range needed {
		if programs[name], err = apiserver.Program(name); err != nil {
			return false, err
		}
	}
	root, err := sandbox.SourceRoot()
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "evictd-conformance-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	built := os.Getenv(sandbox.ProgramsVariable)
	if built == "" {
		built = dir
		if err := sandbox.Build(dir, scheduler.Evictd, evictdAPIServer); err != nil {
			return false, err
		}
	}
	for _, name := range []string{scheduler.Evictd, evictdAPIServer} {
		programs[name] = filepath.Join(built, name)
	}
	if r.logs == "" {
		r.logs = filepath.Join(dir, "logs")
	}
	fmt.Printf("Kubernetes %s\n\n", version(ctx, programs[scheduler.Kube]))
	begun := time.Now()
	if slices.ContainsFunc(suites, r.wants) {
		if differ, err = r.runSpecs(ctx, runner{programs: programs, dir: dir, logs: r.logs, specs: r.specs, root: root}); err != nil {
			return false, err
		}
		fmt.Printf("\nThe specs took %v.\n", time.Since(begun).Round(time.Second))
	}
	if !measures {
		return differ, nil
	}
	kubernetes, err := sources(ctx, root)
	if err != nil {
		return differ, err
	}
	return differ, perf{programs: programs, dir: dir, sources: kubernetes, rounds: r.rounds}.run(ctx, os.Stdout, r.cases)
}

func (r *conformanceRun) wants(s suite) bool { return r.suites.MatchString(s.name) }

// runSpecs runs the suites one after the other.
func (r *conformanceRun) runSpecs(ctx context.Context, base runner) (differ bool, err error) {
	specs := table{rows: map[string]row{}, left: map[string]left{}, attempts: map[[2]string]map[string]int{}}
	for _, s := range suites {
		if !r.wants(s) {
			continue
		}
		in := base
		name := strings.ReplaceAll(s.name, " ", "-")
		in.dir, in.logs = filepath.Join(base.dir, name), filepath.Join(base.logs, name)
		if err := specs.add(ctx, s, in, r.by); err != nil {
			return false, fmt.Errorf("suite %s: %w", s.name, err)
		}
	}
	return specs.write(os.Stdout), nil
}

// add runs a suite by its columns at the same time: specs wait more than they work.
func (t *table) add(ctx context.Context, s suite, r runner, by *regexp.Regexp) error {
	var group sync.WaitGroup
	reports, faults := make([]report, len(columns)), make([]error, len(columns))
	run := func(c column) bool { return slices.Contains(s.by, c.name) && by.MatchString(c.name) }
	for i, c := range columns {
		if run(c) {
			group.Go(func() { reports[i], faults[i] = r.run(ctx, s, c) })
		}
	}
	group.Wait()
	for i, c := range columns {
		if run(c) && faults[i] == nil {
			t.merge(s.name, c.name, reports[i])
		}
	}
	return errors.Join(faults...)
}

// version is what a program of Kubernetes answers to --version, without its name.
func version(ctx context.Context, program string) string {
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "unknown"
	}
	_, number, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	return number
}
