package agent

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/checkpoint"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/internal/wire"
)

// role makes this test binary an agent of the kind that its first argument says.
const role = "EVICTD_AGENT_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(role) != "" {
		runFake(os.Args[1])
		return
	}
	os.Setenv(role, "1")
	goleak.VerifyTestMain(m)
}

// runFake is an agent that needs no API server: it prints what it receives.
func runFake(kind string) {
	if kind == "check" {
		check()
	}
	line, err := net.FileConn(os.NewFile(wire.AgentFD, "evictd"))
	if err != nil {
		os.Exit(1)
	}
	conn := wire.NewConn[wire.FromAgent, wire.ToAgent](line, 0)
	if kind == "deaf" { // and alive until SIGKILL
		signals := make(chan os.Signal, 1)
		signal.Notify(signals)
		for range signals {
		}
	}
	answer(conn)
}

func answer(conn *wire.Agent) {
	pod := func(name string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), ResourceVersion: "1"}}
	}
	for {
		m, err := conn.Receive()
		if err != nil {
			return
		}
		switch {
		case m.Node != nil:
			_ = conn.Send(wire.FromAgent{Pod: pod("b")})
			_ = conn.Send(wire.FromAgent{Pod: pod("a")})
			_ = conn.Send(wire.FromAgent{Synced: true})
		case m.Conditions != nil:
			_ = conn.Send(wire.FromAgent{API: &wire.API{Connected: true, Error: m.Conditions.Conditions[0].Message}})
		case m.Intent != nil && m.Intent.Message == "done":
			_ = conn.Send(wire.FromAgent{Reported: m.Intent.ID})
		case m.Event != nil && m.Event.Reason == "bind":
			_ = conn.Send(wire.FromAgent{Pod: pod("c")})
		case m.Event != nil && m.Event.Reason == "end":
			os.Exit(1)
		}
	}
}

var await = wait.Until

// newAgent makes an Agent whose process is this test binary, and runs it until
// the test ends.
func newAgent(t *testing.T, kind, dir string) *Agent {
	t.Helper()
	return newAgentThatLogs(t, kind, dir, io.Discard)
}

func newAgentThatLogs(t *testing.T, kind, dir string, to io.Writer) *Agent {
	t.Helper()
	log := slog.New(slog.NewTextHandler(to, nil))
	return run(t, New(Config{Program: open(t, "/proc/self/exe"), Arguments: []string{kind}, Node: wire.Node{Name: "n", Publish: true}}, newKeeper(t, dir), log))
}

func newKeeper(t *testing.T, dir string) *checkpoint.Keeper {
	t.Helper()
	records, err := journal.Open(dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return checkpoint.New(records, nil, osprocess.Now, true, slog.New(slog.DiscardHandler))
}

// loop reports evictions to a Keeper; soft ones are requested from the Eviction API.
type loop struct {
	*checkpoint.Keeper
	cfg   eviction.Config
	state eviction.State
}

func (l *loop) evict(uid types.UID, hard bool, message string) {
	now := time.Now()
	f := eviction.InFlight{UID: uid, Decided: now, Since: now, Hard: hard}
	if !hard {
		f.Patience = 30 * time.Second
	}
	l.state.InFlight = append(slices.Clip(l.state.InFlight), f)
	l.Record(control.Report{At: now, Eviction: &l.cfg, State: l.state, Decisions: []eviction.Decision{{
		Evictions: []eviction.Eviction{{Pod: &eviction.Pod{UID: uid}, Hard: hard, Message: message}},
	}}})
}

// run runs an Agent until the test ends.
func run(t *testing.T, a *Agent) *Agent {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return a
}

func names(a *Agent) string {
	var all []string
	for _, p := range a.Pods() {
		all = append(all, p.Name)
	}
	return strings.Join(all, " ")
}

func standing(message string) wire.NodeConditions {
	return wire.NodeConditions{At: wire.Instant{Time: time.Now()}, Conditions: []v1.NodeCondition{{Message: message}}}
}

func TestAgentSendsAndReceives(t *testing.T) {
	a := newAgent(t, "good", t.TempDir())
	await(t, "the pods", func() bool { return names(a) == "a b" })
	<-a.Changed()
	a.SetConditions(standing("first"))
	a.SetConditions(standing("second"))
	await(t, "the newest standing to be reported", func() bool { return a.API().Error == "second" })
	gone := make(chan types.UID, 1)
	a.cfg.Gone = func(i wire.Intent) { gone <- i.UID }
	l := loop{Keeper: a.evictions}
	l.evict("a", true, "done")
	l.evict("b", true, "")
	await(t, "one eviction to be done with", func() bool { return a.API().Untold == 1 })
	if left, uid := a.evictions.Evictions(), <-gone; len(left) != 2 || uid != "a" { // both are in flight
		t.Errorf("kept %+v, gone %v", left, uid)
	}
}

func TestAgentOfTheServiceManagerIsAskedForUntilThereIsOne(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "agent.sock")
	a := run(t, New(Config{Address: path, Node: wire.Node{Name: "n", Publish: true}}, newKeeper(t, t.TempDir()), log))
	a.SetConditions(standing("stands"))
	await(t, "the lack of an agent to be known", func() bool { return strings.Contains(a.API().Error, "start the agent") })
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	for range 2 { // the line of the first one breaks
		conn, err := l.Accept()
		require.NoError(t, err)
		var speaking sync.WaitGroup
		speaking.Go(func() { answer(wire.NewConn[wire.FromAgent, wire.ToAgent](conn, 0)) })
		await(t, "an agent that knows", func() bool { return a.API().Error == "stands" && names(a) == "a b" })
		conn.Close()
		speaking.Wait()
		await(t, "its end to be known", func() bool { return !a.API().Connected })
	}
	l.Close()
}

func TestAgentThatEndsIsStartedAgainAndSentEverything(t *testing.T) {
	a := newAgent(t, "good", t.TempDir())
	a.SetConditions(standing("stands"))
	await(t, "the agent", func() bool { return a.API().Connected })
	pods := a.Pods()
	a.Event(wire.Event{Reason: "end"})
	await(t, "another agent that knows", func() bool { return a.API().Restarts == 1 && a.API().Error == "stands" })
	await(t, "its pods", func() bool { return names(a) == "a b" })
	if again := a.Pods(); again[0] != pods[0] {
		t.Error("a pod that has not changed is another one")
	}
}

func TestAgentKnowsWhichPodsWereReportedFirst(t *testing.T) {
	a := newAgent(t, "good", t.TempDir())
	await(t, "the pods", func() bool { return names(a) == "a b" })
	a.Event(wire.Event{Reason: "bind"})
	await(t, "another pod", func() bool { return names(a) == "a b c" })
	if !a.WasFirst("a") || !a.WasFirst("b") || a.WasFirst("c") {
		t.Error("a and b were reported first, c was bound later")
	}
}

func TestAgentThatHasSentAllPodsIsStartedAgainAtOnceHoweverOften(t *testing.T) {
	var log strings.Builder
	t.Run("agent", func(t *testing.T) { // which writes no more when it is over
		a := newAgentThatLogs(t, "", t.TempDir(), &log)
		for ends := range uint64(5) {
			a.SetConditions(standing("stands"))
			await(t, "an agent that knows", func() bool { return a.API().Restarts == ends && a.API().Connected })
			a.Event(wire.Event{Reason: "end"})
		}
		await(t, "the last agent", func() bool { return a.API().Restarts == 5 && a.API().Connected })
	})
	if ended, atOnce := strings.Count(log.String(), "after="), strings.Count(log.String(), "after=100ms"); ended != 5 || atOnce != 5 {
		t.Errorf("%d agents ended, %d were started again at once:\n%s", ended, atOnce, &log)
	}
}

func TestAgentThatCannotBeStartedCostsNothing(t *testing.T) {
	a := New(Config{Program: open(t, t.TempDir()), Node: wire.Node{Publish: true}}, newKeeper(t, t.TempDir()), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	defer running.Wait()
	defer cancel()
	for range 2 * maxEvents {
		a.SetConditions(standing("x"))
		a.Event(wire.Event{})
	}
	await(t, "the fault to be reported", func() bool { return strings.Contains(a.API().Error, "permission denied") })
	if len(a.out.events) > maxEvents {
		t.Errorf("%d events are kept", len(a.out.events))
	}
}

func TestAgentThatDoesNotReadBlocksNothingAndIsKilled(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "deaf", t.TempDir())
	large := strings.Repeat("x", 1<<20) // more than the line holds
	a.SetConditions(standing(large))
	await(t, "it to be on its way", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.out.conditionsSent
	})
	for range 100 {
		a.SetConditions(standing(large))
	}
}
