// Command bench measures how fast evictd reacts, in bounded cgroups of its own, and
// how fast others do in the same situation. It prints tables and judges nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		play(role)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
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
	flag.Parse()
	fmt.Println(machine())
	table := newTable()
	for busy := range strings.SplitSeq(*load, ",") {
		n, err := strconv.Atoi(busy)
		if err != nil || n < 0 {
			return fmt.Errorf("-load %q: expected numbers of processes, separated by commas", *load)
		}
		for rate := range strings.SplitSeq(*rates, ",") {
			fill, err := strconv.ParseFloat(rate, 64)
			if err != nil || fill < 0 {
				return fmt.Errorf("-rates %q: expected GiB/s, separated by commas", *rates)
			}
			if err := measure(ctx, table, programs(*evictd, *gogc, *runs, *others), max(1, *turns), fill, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// contestant is a program and how often it is measured.
type contestant struct {
	program
	runs int
}

func programs(evictd string, gogc, runs, others int) (all []contestant) {
	for path := range strings.SplitSeq(evictd, ",") {
		all = append(all, contestant{&daemon{path: path}, runs})
		if gogc > 0 {
			all = append(all, contestant{&daemon{path: path, gogc: gogc}, runs})
		}
	}
	if others > 0 {
		all = append(all, contestant{&earlyoom{}, others}, contestant{&poller{}, others})
	}
	return all
}

// measure runs all programs in one situation, in turns, and prints their rows.
func measure(ctx context.Context, table *table, programs []contestant, turns int, rate float64, load int) error {
	stop, err := startHogs(load)
	if err != nil {
		return err
	}
	defer stop()
	results := make([][]result, len(programs))
	for turn := range turns {
		for i, p := range programs {
			some, err := series(ctx, p, (turn+1)*p.runs/turns-turn*p.runs/turns, rate)
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
			table.row(p.name(), rate, load, results[i])
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
	// zero where it has none.
	signalled(*pod) (at int64, err error)
	stop()
}

// series fills a node's memory again and again.
func series(ctx context.Context, p program, runs int, rate float64) (results []result, err error) {
	n, err := newNode()
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
