// Command bench measures how fast evictd reacts, in bounded cgroups of its own, and
// how fast others do in the same situation. It prints tables and judges nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/evictd/evictd/cgroup"
)

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		play(role, os.Args[1:])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		if _, bad := errors.AsType[badInput](err); bad {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	evictd := flag.String("evictd", "bin/evictd", "the program to measure; several, separated by commas, take turns")
	runs := flag.Int("runs", 200, "of each kind")
	turns := flag.Int("turns", 1, "in how many parts the runs of a program are divided, between which the others have theirs")
	rates := flag.String("rates", "0.1,1,0", "GiB/s at which memory is filled; 0 is as fast as it goes")
	load := flag.String("load", "0,20", "processes that take the processors meanwhile, every other of them in the kernel; they end with the measurement")
	gogc := flag.Int("gogc", 0, "measure evictd also with this GOGC: with 1 its collector always runs; 0 leaves that out")
	others := flag.Int("others", 10, "runs of each other program; 0 leaves them out")
	earlyoom := flag.String("earlyoom", "earlyoom", "the program earlyoom; it is left out if it is not installed")
	memory := flag.Int("node", 512, "MiB of memory of the node; the threshold and what is held before are in proportion")
	dir := flag.String("dir", "", "directory for the files of the node, those of the system by default")
	flag.Parse()
	kinds, err := situations(*rates, *load)
	if *memory < leastMemory {
		err = errors.Join(err, badInput(fmt.Sprintf("-node %d: expected %d MiB or more", *memory, leastMemory)))
	}
	if err != nil {
		return err
	}
	cgroups, err := cgroup.Discover("")
	if err != nil {
		return err
	}
	b := bench{cgroups: cgroups, size: sized(*memory), dir: *dir, turns: max(1, *turns)}
	fmt.Println(machine())
	fmt.Printf("a node of %d MiB, cgroup %v, threshold at %d MiB, %d MiB held before\n", b.memory, cgroups.Version(), b.threshold, b.prefilled)
	b.table = newTable()
	for _, s := range kinds {
		if err := b.measure(ctx, programs(*evictd, *earlyoom, *gogc, *runs, *others), s); err != nil {
			return err
		}
	}
	return nil
}

// leastMemory is the least memory of a node, MiB: less is not enough for the process of a pod.
const leastMemory = 32

// badInput is a flag that cannot be.
type badInput string

func (b badInput) Error() string { return string(b) }

// situation is how fast memory is filled, GiB/s, and how many processes take the processors meanwhile.
type situation struct {
	rate float64
	load int
}

// situations are all rates at each load.
func situations(rates, loads string) (all []situation, err error) {
	for load := range strings.SplitSeq(loads, ",") {
		n, fault := strconv.Atoi(load)
		if fault != nil || n < 0 {
			return nil, badInput(fmt.Sprintf("-load %q: expected numbers of processes, separated by commas", loads))
		}
		for rate := range strings.SplitSeq(rates, ",") {
			fill, fault := strconv.ParseFloat(rate, 64)
			if fault != nil || !(fill >= 0) || math.IsInf(fill, 0) {
				return nil, badInput(fmt.Sprintf("-rates %q: expected GiB/s, separated by commas", rates))
			}
			all = append(all, situation{fill, n})
		}
	}
	return all, nil
}

// bench is what all situations have in common.
type bench struct {
	cgroups *cgroup.System
	size
	dir   string
	turns int // parts that the runs of a program are divided in
	table *table
}

// contestant is a program and how often it is measured.
type contestant struct {
	program
	runs int
}

func programs(evictd, earlyoomPath string, gogc, runs, others int) (all []contestant) {
	for path := range strings.SplitSeq(evictd, ",") {
		all = append(all, contestant{&daemon{path: path}, runs})
		if gogc > 0 {
			all = append(all, contestant{&daemon{path: path, gogc: gogc}, runs})
		}
	}
	if others > 0 {
		all = append(all, contestant{&earlyoom{path: earlyoomPath}, others}, contestant{&poller{}, others})
	}
	return all
}

// measure runs all programs in one situation, in turns, and prints their rows.
func (b *bench) measure(ctx context.Context, programs []contestant, s situation) error {
	stop, err := startHogs(s.load)
	if err != nil {
		return err
	}
	defer stop()
	results := make([][]result, len(programs))
	for turn := range b.turns {
		for i, p := range programs {
			some, err := b.series(ctx, p.program, (turn+1)*p.runs/b.turns-turn*p.runs/b.turns, s.rate)
			if why, is := errors.AsType[unavailable](err); is {
				fmt.Printf("%s left out: %v\n", p.name(), why)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", p.name(), err)
			}
			results[i] = append(results[i], some...)
		}
	}
	for i, p := range programs {
		if len(results[i]) > 0 {
			b.table.row(b, p.name(), s, results[i])
		}
	}
	return nil
}

// unavailable says why a program cannot be measured here.
type unavailable string

func (u unavailable) Error() string { return string(u) }

// program is one that kills the process which fills a node's memory.
type program interface {
	name() string
	// start protects the node until stop.
	start(*node) error
	// expect returns when the program knows the pod.
	expect(context.Context, *pod) error
	// signalled is when the pod was first signalled, by the program's own word;
	// zero if it has none.
	signalled(*pod) (at int64, err error)
	// wrap is the process of a pod, which fill is given to.
	wrap(fill []string) *exec.Cmd
	// ended is why the program has ended the pod, by its own word; "" if it has none.
	ended(*pod) (why string)
	stop()
}

// series fills a node's memory again and again.
func (b *bench) series(ctx context.Context, p program, runs int, rate float64) (results []result, err error) {
	n, err := newNode(b.cgroups, b.size, b.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.remove()) }()
	defer p.stop()
	if err := p.start(n); err != nil {
		return nil, err
	}
	for range runs {
		r, err := n.fill(ctx, p, rate)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}
