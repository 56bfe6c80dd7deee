// Command all runs the tests in parts, each part with what it builds first, and prints
// the time of each part, what failed, and what was skipped for which reason.
//
//	go run ./test/all                    # make test-all: every part
//	go run ./test/all small              # make test: the part that needs only Go
//	go run ./test/all -missing           # the Debian packages that the parts lack here
//
// Arguments are names of parts; flags of go test follow "--".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/sandbox"
)

const (
	exitFailed   = 1
	exitBadInput = 2
)

// errFailed says that a part failed, which has been reported.
var errFailed = errors.New("failed")

func main() {
	missing := flag.Bool("missing", false, "print the Debian packages of programs that are missing here, and run nothing")
	without := flag.String("without", "", "a `part` that is left out")
	flag.Parse()
	names, flags := flag.Args(), []string(nil)
	if at := slices.Index(names, "--"); at >= 0 {
		names, flags = names[:at], names[at+1:]
	}
	chosen, err := choose(names)
	left, err1 := choose(strings.Fields(*without))
	if err := errors.Join(err, err1); err != nil {
		fmt.Fprintln(os.Stderr, "all:", err)
		os.Exit(exitBadInput)
	}
	if *without != "" {
		chosen = slices.DeleteFunc(slices.Clone(chosen), func(p part) bool { return p.name == left[0].name })
	}
	if *missing {
		fmt.Println(strings.Join(debianPackages(lacking(chosen)), " "))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, chosen, flags); err != nil {
		if !errors.Is(err, errFailed) {
			fmt.Fprintln(os.Stderr, "all:", err)
		}
		stop()
		os.Exit(exitFailed)
	}
}

// choose finds parts by their names; no name is all parts.
func choose(names []string) ([]part, error) {
	if len(names) == 0 {
		return parts, nil
	}
	var chosen []part
	for _, name := range names {
		at := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if at < 0 {
			var known []string
			for _, p := range parts {
				known = append(known, p.name)
			}
			return nil, fmt.Errorf("part %q: expected one of %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, parts[at])
	}
	return chosen, nil
}

// lacking is what the parts need and this machine does not have.
func lacking(parts []part) (missing []need) {
	for _, p := range parts {
		for _, n := range p.needs {
			if _, err := exec.LookPath(n.program); err != nil && !slices.Contains(missing, n) {
				missing = append(missing, n)
			}
		}
	}
	return missing
}

func debianPackages(needs []need) (names []string) {
	for _, n := range needs {
		names = append(names, n.debian)
	}
	return names
}

// result is the outcome of a part.
type result struct {
	part
	built, took time.Duration
	err         error
}

// run runs parts one after the other, whether or not those before failed. Foreign programs of later parts are
// built beside them.
func run(ctx context.Context, chosen []part, flags []string) error {
	dir, err := os.MkdirTemp("", "evictd-tests-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	gotestsum := filepath.Join(dir, "gotestsum")
	build := exec.CommandContext(ctx, "go", "build", "-modfile=internal/tools/go.mod", "-o", gotestsum, "gotest.tools/gotestsum")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build gotestsum: %w\n%s", err, out)
	}
	if len(chosen) > 1 {
		plan(os.Stdout, chosen)
	}
	programs, err := buildPrograms(ctx, dir)
	if err != nil {
		return err
	}
	skipped, passed, begun := map[string]int{}, map[string]bool{}, time.Now()
	var results []result
	building, stop := context.WithCancel(ctx)
	foreign := buildForeign(building, chosen)
	defer func() {
		stop()
		for range foreign { // until the last has ended
		}
	}()
	for i, p := range chosen {
		events := filepath.Join(dir, fmt.Sprint(i))
		if len(chosen) > 1 {
			fmt.Printf("\n== %s: %s\n", p.name, p.tests)
		}
		built := <-foreign
		_, _ = os.Stdout.Write(built.output)
		result := result{part: p, built: built.took, err: built.err}
		if result.err == nil {
			result = p.test(ctx, gotestsum, events, programs, flags)
			result.built += built.took
		}
		results = append(results, result)
		if err := addSkips(events, skipped, passed); err != nil {
			return err
		}
	}
	writeSkips(os.Stdout, skipped)
	writeMachines(os.Stdout, passed, hierarchy())
	if len(chosen) > 1 {
		table(os.Stdout, results, time.Since(begun))
	}
	if slices.ContainsFunc(results, func(r result) bool { return r.err != nil }) {
		return errFailed
	}
	return ctx.Err()
}

// made is what make left of the foreign programs of a part.
type made struct {
	output []byte
	took   time.Duration
	err    error
}

// buildForeign builds the foreign programs of parts, one part after the other, and sends the output, time and error of each. It needs
// the processor while tests wait; the Makefile builds with a lower priority than tests have.
func buildForeign(ctx context.Context, chosen []part) <-chan made {
	all := make(chan made, len(chosen))
	go func() {
		defer close(all)
		for _, p := range chosen {
			begun := time.Now()
			var m made
			if len(p.foreign) > 0 {
				make := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory"}, p.foreign...)...)
				make.Cancel = func() error { return make.Process.Signal(syscall.SIGTERM) }
				m.output, m.err = make.CombinedOutput()
			}
			m.took = time.Since(begun)
			all <- m
		}
	}()
	return all
}

// buildPrograms builds evictd's programs once for all parts, where every user can execute
// them, and returns their directory.
func buildPrograms(ctx context.Context, dir string) (string, error) {
	programs := filepath.Join(dir, "bin")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", programs+"/", "./cmd/...")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return programs, errors.Join(os.Chmod(dir, 0o755), os.Chmod(programs, 0o755))
}

// plan writes what the parts test, what they build and what they need that is missing.
func plan(out io.Writer, chosen []part) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PART\tTESTS\tBUILDS THE FIRST TIME\tNEEDS")
	for _, p := range chosen {
		var needs []string
		for _, n := range p.needs {
			needs = append(needs, n.program)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.name, p.tests, p.takes, strings.Join(needs, " "))
	}
	w.Flush()
	missing := lacking(chosen)
	for _, n := range missing {
		fmt.Fprintf(out, "left out: tests that need %s, which is not installed\n", n.program)
	}
	if len(missing) > 0 {
		fmt.Fprintf(out, "to install what is missing: apt-get install %s\n", strings.Join(debianPackages(missing), " "))
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(out, "left out: tests that make cgroups, mounts or namespaces, which need root")
	}
}

// test builds what a part needs and runs its tests; events is a new file for the
// output of go test -json, programs the directory of evictd's programs.
func (p part) test(ctx context.Context, gotestsum, events, programs string, flags []string) (r result) {
	r.part = p
	begun := time.Now()
	if len(p.builds) > 0 {
		make := command(ctx, "make", append([]string{"--no-print-directory"}, p.builds...)...)
		if r.err = make.Run(); r.err != nil {
			return r
		}
	}
	packages, err := p.patterns(ctx)
	if err != nil {
		r.err = err
		return r
	}
	r.built, begun = time.Since(begun), time.Now()
	if len(packages) > 0 {
		r.err = p.runTests(ctx, gotestsum, events, programs, flags, packages)
	}
	for _, t := range p.targets {
		r.err = errors.Join(r.err, t.make(ctx))
	}
	r.took = time.Since(begun)
	return r
}

// runTests runs the tests of packages.
func (p part) runTests(ctx context.Context, gotestsum, events, programs string, flags, packages []string) error {
	// Without DWARF (-w) a test binary links in half of the time; `make check` vets.
	args := []string{"--format=pkgname", "--format-hide-empty-pkg", "--hide-summary=skipped", "--jsonfile=" + events, "--", "-vet=off", "-ldflags=-w", "-count=1", "-timeout=60m"}
	if p.run != "" {
		args = append(args, "-run="+p.run)
	}
	test := command(ctx, gotestsum, slices.Concat(args, p.flags, flags, packages)...)
	test.Dir, test.Env = p.module, append(append(os.Environ(), sandbox.ProgramsVariable+"="+programs), p.env...)
	return test.Run()
}

// shown is how many of the last lines of a target that fails are shown.
const shown = 60

// make makes a target at its smallest, if its foreign programs could be built. Its output is shown if it fails.
func (t target) make(ctx context.Context) error {
	if why, err := os.ReadFile(filepath.Join("test", t.foreign, "bin/unavailable")); t.foreign != "" && err == nil {
		fmt.Printf("left out: make %s: %s\n", t.name, strings.TrimSpace(string(why)))
		return nil
	}
	begun := time.Now()
	c := exec.CommandContext(ctx, "make", "--no-print-directory", t.name)
	c.Env = append(os.Environ(), campaign.SmallestVariable+"=1")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	out, err := c.CombinedOutput()
	if err != nil {
		lines := strings.Split(string(out), "\n")
		err = fmt.Errorf("make %s: %w", t.name, err)
		fmt.Printf("✖  %v\n%s\n", err, strings.Join(lines[max(0, len(lines)-shown):], "\n"))
		return err
	}
	fmt.Printf("✓  make %s (%v)\n", t.name, time.Since(begun).Round(time.Second))
	return nil
}

// command writes to the standard output and gets SIGTERM when ctx ends.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	return c
}

// patterns are the packages of a part.
func (p part) patterns(ctx context.Context) ([]string, error) {
	if p.name != small {
		return slices.Concat(p.packages, p.again), nil
	}
	args := []string{"list"}
	for _, other := range parts {
		if other.module == "" {
			args = append(args, other.packages...)
		}
	}
	all, err := exec.CommandContext(ctx, "go", "list", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	others, err := exec.CommandContext(ctx, "go", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	elsewhere := strings.Fields(string(others))
	return slices.DeleteFunc(strings.Fields(string(all)), func(name string) bool { return slices.Contains(elsewhere, name) }), nil
}

// addSkips counts the skipped tests of a part and notes those that passed. A part that did not run has no events.
func addSkips(events string, skipped map[string]int, passed map[string]bool) error {
	file, err := os.Open(events)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	return countSkips(file, skipped, passed)
}

// table writes the times of the parts, and which failed. The foreign programs of a part are built while others are
// tested, so that all takes less than the parts together.
func table(out io.Writer, results []result, all time.Duration) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nPART\tBUILD\tTESTS\t\t")
	for _, r := range results {
		outcome := "ok"
		if r.err != nil {
			outcome = "FAILED"
		}
		fmt.Fprintf(w, "%s\t%v\t%v\t%s\t\n", r.name, r.built.Round(time.Second), r.took.Round(time.Second), outcome)
	}
	fmt.Fprintf(w, "all\t\t%v\t\t\n", all.Round(time.Second))
	w.Flush()
}
