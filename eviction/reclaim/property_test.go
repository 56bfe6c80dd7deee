package reclaim_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sort"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/stats"
)

// rounds is how many random nodes a property is tried on.
const rounds = 2000

// everywhere tries a property on random choices; a failure names the seed.
func everywhere(t *testing.T, property func(t *testing.T, r *rand.Rand, inv *reclaim.Inventory, p *reclaim.Policy, g reclaim.Goal)) {
	t.Helper()
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 0))
		property(t, r, anyInventory(r), anyPolicy(r), anyGoal(r))
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func one[T any](r *rand.Rand, options ...T) T { return options[r.IntN(len(options))] }

func anyAmount(r *rand.Rand) stats.Amount {
	return one(r, stats.Amount{}, stats.Known(0), stats.Known(r.Int64N(1000)), stats.Known(r.Int64N(1000)))
}

func anyTime(r *rand.Rand) time.Time {
	return one(r, time.Time{}, now.Add(-time.Duration(r.IntN(10))*time.Minute), now.Add(-time.Duration(r.IntN(600))*time.Minute))
}

func anyInventory(r *rand.Rand) *reclaim.Inventory {
	inv := &reclaim.Inventory{Complete: r.IntN(4) > 0, Watched: anyTime(r), Pods: map[types.UID]reclaim.Pod{}}
	pod := func() types.UID { return types.UID(fmt.Sprint("pod", r.IntN(5))) }
	for range r.IntN(5) {
		inv.Pods[pod()] = reclaim.Pod{Ended: r.IntN(3) == 0, Images: []string{fmt.Sprint("image", r.IntN(12))}}
	}
	for i := range r.IntN(14) {
		inv.Containers = append(inv.Containers, reclaim.Container{
			ID: fmt.Sprint("c", i), Pod: pod(), Name: one(r, "a", "b"), Sandbox: fmt.Sprint("s", r.IntN(4)), Image: fmt.Sprint("i", r.IntN(12)),
			Attempt: r.Uint32N(3), Created: anyTime(r), Finished: anyTime(r), Running: r.IntN(6) == 0,
			Layer: anyAmount(r), LayerInodes: anyAmount(r), Logs: anyAmount(r), LogInodes: anyAmount(r),
		})
	}
	for i := range r.IntN(5) {
		inv.Sandboxes = append(inv.Sandboxes, reclaim.Sandbox{ID: fmt.Sprint("s", i), Pod: pod(), Created: anyTime(r), Ready: r.IntN(4) == 0})
	}
	for i := range r.IntN(10) {
		inv.Images = append(inv.Images, reclaim.Image{
			ID: fmt.Sprint("i", i), References: []string{fmt.Sprintf("docker.io/library/image%d:latest", i)}, Size: anyAmount(r), Inodes: anyAmount(r),
			Pinned: r.IntN(8) == 0, FirstDetected: anyTime(r), LastUsed: anyTime(r),
		})
	}
	inv.AddUsers()
	return inv
}

func anyPolicy(r *rand.Rand) *reclaim.Policy {
	return &reclaim.Policy{
		ContainerMinAge: one(r, 0, 3*time.Minute), MaxPerPodContainer: r.IntN(4) - 1, MaxContainers: r.IntN(9) - 2,
		ImageMinAge: 2 * time.Minute, ImageMaxAge: one(r, 0, 0, time.Hour), Everything: r.IntN(4) == 0,
		Keep: one(r, nil, []string{"docker.io/library/image1*"}),
	}
}

func anyGoal(r *rand.Rand) reclaim.Goal {
	return reclaim.Goal{
		Containers: r.IntN(4) > 0, Images: r.IntN(4) > 0, Pressure: r.IntN(2) == 0,
		Need: eviction.Need{Bytes: one(r, 0, r.Int64N(3000)), Inodes: one(r, 0, r.Int64N(3000)), Layers: r.IntN(3) > 0, Logs: r.IntN(3) > 0},
	}
}

// reference removes dead containers as the kubelet's container collection does, step
// by step (kuberuntime/kuberuntime_gc.go), and says which.
func reference(inv *reclaim.Inventory, p *reclaim.Policy, pressure bool) []string {
	type unit struct {
		pod  types.UID
		name string
	}
	running := map[types.UID]bool{}
	for _, s := range inv.Sandboxes {
		running[s.Pod] = running[s.Pod] || s.Ready
	}
	units := map[unit][]reclaim.Container{}
	for _, c := range inv.Containers {
		running[c.Pod] = running[c.Pod] || c.Running
		died := c.Finished
		if died.IsZero() {
			died = c.Created
		}
		if !c.Running && !died.After(now.Add(-p.ContainerMinAge)) {
			units[unit{c.Pod, c.Name}] = append(units[unit{c.Pod, c.Name}], c)
		}
	}
	newestFirst := func(all []reclaim.Container) {
		sort.Slice(all, func(i, j int) bool {
			a, b := all[i], all[j]
			switch {
			case !a.Created.Equal(b.Created):
				return a.Created.After(b.Created)
			case a.Attempt != b.Attempt:
				return a.Attempt > b.Attempt
			}
			return a.ID < b.ID
		})
	}
	var gone []string
	total := 0
	for u, all := range units {
		newestFirst(all)
		pod, known := inv.Pods[u.pod]
		release := inv.Complete && !running[u.pod] && (!known || pressure && pod.Ended)
		for len(all) > 0 && (release || p.MaxPerPodContainer >= 0 && len(all) > p.MaxPerPodContainer) {
			gone, all = append(gone, all[len(all)-1].ID), all[:len(all)-1]
		}
		units[u] = all
		if release {
			delete(units, u)
		}
		total += len(all)
	}
	if p.MaxContainers >= 0 && total > p.MaxContainers {
		each := max(1, p.MaxContainers/len(units))
		var left []reclaim.Container
		for _, all := range units {
			for len(all) > each {
				gone, all = append(gone, all[len(all)-1].ID), all[:len(all)-1]
			}
			left = append(left, all...)
		}
		newestFirst(left)
		for len(left) > p.MaxContainers {
			gone, left = append(gone, left[len(left)-1].ID), left[:len(left)-1]
		}
	}
	slices.Sort(gone)
	return gone
}

// rule: 9.12
// rule: 9.13
// rule: 9.14
// rule: 9.15
func TestDeadContainersAreRemovedAsByTheReference(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand, inv *reclaim.Inventory, p *reclaim.Policy, g reclaim.Goal) {
		p.Everything = true
		var got []string
		plan := reclaim.Choose(inv, p, reclaim.Goal{Containers: true, Pressure: g.Pressure}, now)
		for _, removal := range plan.Removals {
			if removal.Kind == reclaim.KindContainer {
				got = append(got, removal.ID)
			}
		}
		slices.Sort(got)
		if want := reference(inv, p, g.Pressure); !slices.Equal(got, want) {
			t.Errorf("removed %v, by the reference %v", got, want)
		}
	})
}

// rule: 9.3
// rule: 9.4
// rule: 9.8
func TestWhatIsUsedPinnedOrYoungIsNeverRemoved(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand, inv *reclaim.Inventory, p *reclaim.Policy, g reclaim.Goal) {
		for _, removal := range reclaim.Choose(inv, p, g, now).Removals {
			for _, c := range inv.Containers {
				if removal.Kind == reclaim.KindContainer && c.ID == removal.ID && c.Running {
					t.Errorf("container %s goes, and runs", c.ID)
				}
			}
			for _, i := range inv.Images {
				if removal.Kind == reclaim.KindImage && i.ID == removal.ID && (i.Pinned || len(i.UsedBy) > 0 || now.Sub(i.FirstDetected) < p.ImageMinAge) {
					t.Errorf("%+v goes", i)
				}
			}
			for _, s := range inv.Sandboxes {
				if removal.Kind == reclaim.KindSandbox && s.ID == removal.ID && s.Ready {
					t.Errorf("sandbox %s goes, and is ready", s.ID)
				}
			}
		}
	})
}

// rule: M.31
// rule: M.32
func TestUnderPressureNoMoreIsRemovedThanIsNeeded(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand, inv *reclaim.Inventory, p *reclaim.Policy, g reclaim.Goal) {
		g.Pressure, p.Everything = true, false
		plan := reclaim.Choose(inv, p, g, now)
		var bytes, inodes int64
		for _, removal := range plan.Removals {
			if bytes >= g.Need.Bytes && inodes >= g.Need.Inodes {
				t.Fatalf("%v %s goes although what goes before suffices", removal.Kind, removal.ID)
			}
			bytes, inodes = bytes+removal.Bytes.Or(0), inodes+removal.Inodes.Or(0)
		}
		if bytes != plan.Bytes || inodes != plan.Inodes {
			t.Errorf("the plan frees %d and %d, it says %d and %d", bytes, inodes, plan.Bytes, plan.Inodes)
		}
		enough := slices.ContainsFunc(plan.Kept, func(k reclaim.Kept) bool { return k.Why == reclaim.Enough })
		if short := bytes < g.Need.Bytes || inodes < g.Need.Inodes; enough && short {
			t.Error("the plan does not suffice, and lacks something that may be removed")
		}
	})
}

func TestEverythingIsRemovedOrKeptForOneReasonWhateverTheOrderOfTheInventory(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rand.Rand, inv *reclaim.Inventory, p *reclaim.Policy, g reclaim.Goal) {
		plan := reclaim.Choose(inv, p, g, now)
		seen := map[string]bool{}
		for _, removal := range plan.Removals {
			seen[fmt.Sprint(removal.Kind, removal.ID)] = true
		}
		for _, k := range plan.Kept {
			seen[fmt.Sprint(k.Kind, k.ID)] = true
		}
		want := 0
		if g.Containers {
			want += len(inv.Containers) + len(inv.Sandboxes)
		}
		if g.Images {
			want += len(inv.Images)
		}
		if n := len(plan.Removals) + len(plan.Kept); len(seen) != want || n != want {
			t.Errorf("of %d things %d are reported, %d of them once", want, n, len(seen))
		}
		r.Shuffle(len(inv.Containers), func(i, j int) { inv.Containers[i], inv.Containers[j] = inv.Containers[j], inv.Containers[i] })
		r.Shuffle(len(inv.Sandboxes), func(i, j int) { inv.Sandboxes[i], inv.Sandboxes[j] = inv.Sandboxes[j], inv.Sandboxes[i] })
		r.Shuffle(len(inv.Images), func(i, j int) { inv.Images[i], inv.Images[j] = inv.Images[j], inv.Images[i] })
		if again := reclaim.Choose(inv, p, g, now); !reflect.DeepEqual(plan, again) {
			t.Errorf("%+v, and shuffled %+v", plan, again)
		}
	})
}

func TestUsedPercentAndNeedHoldForDisksOfAnySize(t *testing.T) {
	p := &reclaim.Policy{HighPercent: 85, LowPercent: 80}
	for _, c := range []struct{ capacity, available, used, need int64 }{
		{100, 15, 85, 5}, {100, 16, 84, 0}, {100, 0, 100, 20}, {100, 200, 0, 0}, {3, 1, 67, 0}, {7, 1, 86, 0},
		{1 << 62, 1 << 58, 94, (1<<62)/5 - 1<<58},
	} {
		if used := reclaim.UsedPercent(c.capacity, c.available); used != c.used {
			t.Errorf("%d of %d left: %d%% used, want %d%%", c.available, c.capacity, used, c.used)
		}
		if need, _ := p.Need(stats.Filesystem{Capacity: stats.Known(c.capacity), Available: stats.Known(c.available)}); need.Bytes != c.need {
			t.Errorf("%d of %d left: needs %d, want %d", c.available, c.capacity, need.Bytes, c.need)
		}
	}
}

// rule: 9.5
func TestAnImageIsKnownFromItsFirstListingAndUsedWhileAContainerUsesIt(t *testing.T) {
	look := func(before map[string]reclaim.Record, at time.Time, images ...reclaim.Image) map[string]reclaim.Record {
		return reclaim.UpdateRecords(before, &reclaim.Inventory{Images: images}, at)
	}
	used := reclaim.Image{ID: "a", UsedBy: []string{"c"}}
	unused := reclaim.Image{ID: "a"}
	first := look(nil, beginning, used, reclaim.Image{ID: "b"})
	second := look(first, beginning.Add(time.Minute), unused, reclaim.Image{ID: "c"})
	third := look(second, beginning.Add(2*time.Minute), unused, reclaim.Image{ID: "b"}, reclaim.Image{ID: "c"})
	for _, c := range []struct {
		name      string
		got, want map[string]reclaim.Record
	}{
		{"what is there at the first look is old", first, map[string]reclaim.Record{"a": {LastUsed: beginning}, "b": {}}},
		{"what comes later is new, and use is remembered", second, map[string]reclaim.Record{"a": {LastUsed: beginning}, "c": {FirstDetected: beginning.Add(time.Minute)}}},
		{"what comes again is new", third, map[string]reclaim.Record{"a": {LastUsed: beginning}, "b": {FirstDetected: beginning.Add(2 * time.Minute)}, "c": {FirstDetected: beginning.Add(time.Minute)}}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}
