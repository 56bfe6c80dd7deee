package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/framework"
)

var _ Profile = (*framework.Runner)(nil)

// TestScenarios runs the scripts of testdata and compares the transcripts.
func TestScenarios(t *testing.T) {
	golden.Each(t, "testdata/*.script", func(t *testing.T, file string) {
		text := require.ReadFile(t, file)
		got, err := newScript().run(string(text))
		if err != nil {
			t.Error(err)
		}
		if strings.Contains(got, "error: ") {
			t.Errorf("the script has faults:\n%s", got)
		}
		golden.Check(t, golden.Beside(file, ".transcript"), got)
	})
}

// check verifies that each pod is in one place and can be found there.
func (s *script) check() error {
	q := s.q
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	found := map[*Entry]int{}
	in := func(name string, entries []*Entry, places ...Place) {
		for _, e := range entries {
			found[e]++
			if q.entries[e.Pod.UID] != e || !slices.Contains(places, e.place) {
				fault("%s lists %s, which is %v", name, e.Pod.UID, e.place)
			}
		}
	}
	for name, h := range map[string]*heap{"active": &q.active, "backoff": &q.backoff, "errors": &q.errors, "waiting": &q.waiting} {
		for i, e := range h.items {
			if e.at[h.slot] != i {
				fault("%s has %s at %d, which thinks %d", name, e.Pod.UID, i, e.at[h.slot])
			}
			if i > 0 && !h.less(h.items[(i-1)/2], e) {
				fault("%s has %s before %s", name, h.items[(i-1)/2].Pod.UID, e.Pod.UID)
			}
		}
	}
	in("active", q.active.items, Active)
	in("backoff", q.backoff.items, Backoff)
	in("errors", q.errors.items, Backoff)
	carried := map[*rejection]int{}
	for _, r := range q.rejections {
		in("rejection", r.members, Unschedulable, Gated)
		for i, e := range r.members {
			if e.by != r || e.member != i {
				fault("%s has the wrong place in its rejection", e.Pod.UID)
			}
		}
	}
	from := uint64(0)
	for e := q.inFlight.oldest; e != nil; e = e.younger {
		in("flights", []*Entry{e}, InFlight)
		if e.from < from {
			fault("%s was popped before its elder", e.Pod.UID)
		}
		from = e.from
	}
	depths := [places]int{}
	for _, e := range q.entries {
		depths[e.place]++
		if e.by != nil {
			carried[e.by]++
		}
		want := 1
		if e.place == Binding {
			want = 0
		}
		if found[e] != want {
			fault("%s is in %d lists", e.Pod.UID, found[e])
		}
		waits := (e.place == Unschedulable || e.place == Gated) && e.by.hintsOf(framework.UnschedulableTimeout).always
		if waits != (e.at[byTimeout] >= 0) {
			fault("%s waits for a timeout: %v", e.Pod.UID, !waits)
		}
	}
	for _, r := range q.rejections {
		if r.pods != carried[r] {
			fault("%d pods carry %v, not %d", carried[r], r.unschedulable, r.pods)
		}
	}
	for place := Active; place < places; place++ {
		if q.Depth(place) != depths[place] {
			fault("depth of %v is %d, not %d", place, depths[place], q.Depth(place))
		}
	}
	if q.inFlight.oldest == nil && len(q.inFlight.events) > 0 {
		fault("%d events without a pod in flight", len(q.inFlight.events))
	}
	return errors.Join(errs...)
}

// randomConfig is the configuration of random scripts.
const randomConfig = `
hint Fit Node/Add
hint Fit Node/UpdateNodeAllocatable
hint Fit AssignedPod/Delete
hint Fit Pod/UpdatePodScaleDown always
hint Taints Node/Add|UpdateNodeTaint
hint Taints TargetPod/UpdatePodToleration fails
hint Spread Pod/Add|Delete|UpdatePodLabel
hint Claims resource.k8s.io/ResourceClaim/Add|Update
hint Volumes PersistentVolume/All always
hint SchedulingGates Pod/UpdatePodSchedulingGatesEliminated
hint Preemption AssignedPod/Delete always
hint Foreign */All always
`

// TestRandomDaysMatchTheReference runs random commands; the script compares queue
// and reference and checks the invariants after each.
func TestRandomDaysMatchTheReference(t *testing.T) {
	runRandomDays(t, 2, 10_000)
}

func TestCampaignRandomDaysMatchTheReference(t *testing.T) {
	campaign.Only(t)
	runRandomDays(t, 64, campaign.Size(10_000, 20))
}

func runRandomDays(t *testing.T, seeds uint64, steps int) {
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			day := randomDay(rand.New(rand.NewPCG(seed, 1)), steps)
			if transcript, err := newScript().run(randomConfig + day); err != nil {
				lines := strings.Split(transcript, "\n")
				t.Fatalf("%v\n%s", err, strings.Join(lines[max(0, len(lines)-60):], "\n"))
			}
		})
	}
}

func randomDay(rng *rand.Rand, steps int) string {
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	pod := func() string { return fmt.Sprint("p", rng.IntN(16)) }
	plugins := func() string {
		return pick("", "Fit", "Fit", "Taints", "Spread", "Fit Taints", "Volumes Spread", "Unregistered", "Foreign", "pending Claims", "Fit pending Claims", "pending Claims Volumes")
	}
	commands := []func() string{
		func() string {
			return fmt.Sprintf("add %s prio %d%s", pod(), rng.IntN(3), pick("", "", "", " gated", " as other"))
		},
		func() string { return "pop" },
		func() string { return "pop" },
		func() string { return "fail " + pod() + " " + plugins() },
		func() string { return "fail " + pod() + " " + plugins() },
		func() string { return "fail " + pod() + " " + plugins() },
		func() string { return "permit " + pod() },
		func() string { return "delete " + pod() },
		func() string { return "activate " + pod() + " " + pod() },
		func() string {
			return fmt.Sprintf("update %s %s prio %d%s", pod(), pick("UpdatePodLabel", "UpdatePodScaleDown|UpdatePodLabel", "UpdatePodToleration", "UpdatePodSchedulingGatesEliminated"), rng.IntN(3), pick("", "", " gated"))
		},
		func() string { return "gate " + pod() + " " + pick("Preemption", "Foreign", "Deaf") },
		func() string { return "ungate " + pod() },
		func() string { return "ungate " + pod() },
		func() string {
			return fmt.Sprintf("event %s %s %s %s", pick("Node/Add", "Node/UpdateNodeTaint", "Node/UpdateNodeAllocatable|UpdateNodeLabel", "Node/Delete", "AssignedPod/Delete", "UnscheduledPod/UpdatePodLabel", "PersistentVolume/Add", "resource.k8s.io/ResourceClaim/Update", "*/All"), pod(), pod(), pod())
		},
		func() string { return "advance" },
	}
	var b strings.Builder
	now := time.Duration(0)
	for range steps {
		if rng.IntN(4) == 0 && now < 23*time.Hour {
			now += time.Duration(rng.Int64N(int64(3 * time.Second)))
			if rng.IntN(50) == 0 {
				now += time.Duration(rng.Int64N(int64(7 * time.Minute)))
			}
			fmt.Fprintf(&b, "at %v\n", now)
		}
		b.WriteString(commands[rng.IntN(len(commands))]() + "\n")
	}
	return b.String()
}

// TestNextIsWhenPopBringsAPod compares Next with a Pop in each second.
func TestNextIsWhenPopBringsAPod(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s := newScript()
		if _, err := s.run(randomConfig + randomDay(rng, 100)); err != nil {
			t.Fatal(err)
		}
		clear(s.gates)
		for _, e := range s.q.Entries() {
			e.Pod.Object.Spec.SchedulingGates = nil // a gate may delay the pod
		}
		for s.q.Pop(s.now) != nil {
		}
		nominated, ok := s.q.Next(s.now)
		if ok && !nominated.After(s.now) {
			t.Fatalf("seed %d: nothing to pop at %v, Next says %v", seed, s.now.Sub(s.start), nominated.Sub(s.start))
		}
		var brought time.Time
		for at := s.now.Truncate(time.Second); brought.IsZero() && at.Before(s.now.Add(10*time.Minute)); at = at.Add(time.Second) {
			if at.After(s.now) && s.q.Pop(at) != nil {
				brought = at
			}
		}
		if ok != !brought.IsZero() || ok && !brought.Equal(nominated) {
			t.Fatalf("seed %d: Next says %v %v, a pod came at %v", seed, nominated, ok, brought)
		}
	}
}

func FuzzScript(f *testing.F) {
	files, err := filepath.Glob("testdata/*.script")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add(randomConfig + randomDay(rand.New(rand.NewPCG(1, 3)), 200))
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 20_000 || strings.ContainsAny(text, "\x00\x01") {
			t.Skip("too long, or names that the queue does not guarantee to distinguish")
		}
		if transcript, err := newScript().run(text); err != nil {
			t.Fatalf("%v\n%s", err, transcript)
		}
	})
}
