package demo

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
)

//go:embed virtual.yaml
var virtualPods []byte

// PlayVirtual plays the script of a single node on a host without cgroups, whose pods are
// measured through procfs, which an unprivileged user may do. A pod leaks, and evictd
// evicts it. There is no API: evictd publishes the Node in a file. The error is as Play's.
func PlayVirtual(ctx context.Context, t *console.Printer, programs Programs) error {
	s, err := newScript(t, programs, "the Node file")
	if err == nil {
		var n *node
		n, err = newNode(nil, shape{name: "virtual", memory: 512 * console.MiB, threshold: 100 * console.MiB}, filepath.Join(s.dir, "virtual"))
		s.nodes, s.pressed = []*node{n}, n
	}
	if err != nil {
		return errors.Join(err, s.remove())
	}
	return s.run(ctx, false, s.sumUpVirtual, act{"the node starts", s.comeUpVirtual}, act{"a pod leaks", s.leakVirtual},
		act{"it is evicted", s.relieve}, act{"the node recovers", s.healVirtual})
}

// comeUpVirtual starts the pods and their evictd.
func (s *script) comeUpVirtual(ctx context.Context) error {
	n := s.pressed
	s.Print(time.Now(), console.Blue, "node", "virtual: %s, used by its pods alone, which are measured through procfs", console.Size(n.memory))
	err := n.startPods(s.programs.Pod, virtualPods)
	if err == nil {
		err = n.start(s.programs.Evictd)
	}
	if err != nil {
		return err
	}
	s.beginHelping(ctx)
	s.serve("evictd", n.evictd)
	s.help(s.helping, s.watchFile)
	for _, p := range n.own {
		p.created = time.Now()
		s.pods[p.UID] = p
		s.help(s.helping, func(ctx context.Context) error { return s.watchEnd(ctx, p) })
	}
	s.Print(time.Now(), console.Blue, "evictd", "runs as process %d, and evicts where %s", n.evictd.PID(), n.hard())
	return nil
}

// leakVirtual has the worker leak until the threshold is crossed.
func (s *script) leakVirtual(ctx context.Context) error {
	worker := s.pressed.own[slices.IndexFunc(s.pressed.own, func(p *pod) bool { return p.Name == "worker" })]
	if err := s.beginLeak(ctx, s.helping, worker); err != nil {
		return err
	}
	return s.await(ctx, "the threshold to be crossed", func() bool { return !s.crossed.IsZero() || s.asked(ctx) })
}

// healVirtual waits until the condition and the taint are gone.
func (s *script) healVirtual(ctx context.Context) error {
	if err := s.endConditions(); err != nil {
		return err
	}
	return s.await(ctx, "the node to recover", func() bool { return s.pressed.recovered() && s.asked(ctx) })
}

// watchFile sees changes of the file that evictd publishes the Node in.
func (s *script) watchFile(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for last := []byte(nil); ; {
		text, err := os.ReadFile(s.pressed.statusFile())
		at := time.Now()
		if err == nil && !bytes.Equal(text, last) {
			last = text
			var published v1.Node
			if err := yaml.Unmarshal(text, &published); err != nil {
				return fmt.Errorf("read the Node file: %w", err)
			}
			s.send(ctx, func() { s.nodeTurned(at, &published) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// watchEnd sees the process of a pod end. The end of any other than the leaking one is
// an error.
func (s *script) watchEnd(ctx context.Context, p *pod) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.process.Ended():
	}
	at, state := p.process.End()
	s.send(ctx, func() {
		p.gone = at
		s.Print(at, console.Red, "pod", "%v ended (%v)%s", p, state, s.afterCrossing(at))
		if p.UID != s.leaker {
			s.broken = fmt.Errorf("%v ended: %v", p, state)
		}
	})
	return nil
}

// sumUpVirtual writes the figures and judges what must hold.
func (s *script) sumUpVirtual() error {
	s.Print(time.Now(), console.Bold, "summary", "")
	if s.evictions > 0 {
		s.measures()
	}
	n := s.pressed
	return s.Judge([]console.Claim{
		{Text: "memory fell below the threshold, and is above it again", Held: !s.crossed.IsZero() && !s.back.IsZero()},
		{Text: "evictd evicted shop/worker, and that was enough", Held: s.evictions == 1 && s.eviction.UID == s.leaker && !s.pod(s.leaker).gone.IsZero()},
		{Text: "no other pod ended", Held: s.othersUntouched()},
		{Text: "the Node had MemoryPressure and its taint, and lost both", Held: !n.raised.IsZero() && !n.tainted.IsZero() && n.recovered()},
	})
}
