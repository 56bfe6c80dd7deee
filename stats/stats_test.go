package stats_test

import (
	"testing"
	"time"

	"github.com/evictd/evictd/stats"
)

var unknown stats.Amount

func TestWhatIsUnknownStaysUnknownInSumsAndDifferences(t *testing.T) {
	for name, test := range map[string]struct{ got, want stats.Amount }{
		"sum":                              {stats.Known(2).Plus(stats.Known(3)), stats.Known(5)},
		"sum with an unknown":              {stats.Known(2).Plus(unknown), unknown},
		"difference":                       {stats.Known(5).Minus(stats.Known(3)), stats.Known(2)},
		"a difference is not below zero":   {stats.Known(3).Minus(stats.Known(5)), stats.Known(0)},
		"difference from an unknown":       {unknown.Minus(stats.Known(3)), unknown},
		"difference to an unknown":         {stats.Known(5).Minus(unknown), unknown},
		"Sum adds what is known":           {stats.Sum(stats.Known(2), unknown, stats.Known(3)), stats.Known(5)},
		"Sum of unknowns":                  {stats.Sum(unknown, unknown), unknown},
		"Sum of nothing":                   {stats.Sum(), unknown},
		"a measured zero is no unknown":    {stats.Sum(stats.Known(0)), stats.Known(0)},
		"Or of an unknown is the fallback": {stats.Known(unknown.Or(7)), stats.Known(7)},
		"Or of a known is the amount":      {stats.Known(stats.Known(2).Or(7)), stats.Known(2)},
	} {
		if test.got != test.want {
			t.Errorf("%s: %+v, want %+v", name, test.got, test.want)
		}
	}
}

// rule: 1.21
func TestTheWorkingSetIsUsageLessInactiveFilePages(t *testing.T) {
	for name, test := range map[string]struct {
		memory stats.Memory
		want   stats.Amount
	}{
		"usage less inactive file":      {stats.Memory{Usage: stats.Known(100), InactiveFile: stats.Known(30)}, stats.Known(70)},
		"never below zero":              {stats.Memory{Usage: stats.Known(30), InactiveFile: stats.Known(100)}, stats.Known(0)},
		"unknown file pages count none": {stats.Memory{Usage: stats.Known(100)}, stats.Known(100)},
		"unknown usage":                 {stats.Memory{InactiveFile: stats.Known(30)}, unknown},
	} {
		if got := test.memory.WorkingSet(); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// machine is a root cgroup: 1000 bytes, of which 600 are used, 100 of them by
// inactive and 150 by active file pages; 80 of kernel memory could be reclaimed.
func machine(change func(*stats.Memory)) stats.Memory {
	m := stats.Memory{
		Limit: stats.Known(1000), Usage: stats.Known(600), InactiveFile: stats.Known(100), ActiveFile: stats.Known(150),
		SlabReclaimable: stats.Known(80), MemAvailable: stats.Known(640),
	}
	if change != nil {
		change(&m)
	}
	return m
}

// rule: 1.11
// rule: 1.12
// rule: 1.27
// rule: 1.28
// rule: 1.29
// rule: 1.30
// rule: 1.31
// rule: 1.32
func TestEveryMemoryModelSaysWhatIsAvailable(t *testing.T) {
	const workingSet, available, aware = stats.WorkingSetModel, stats.AvailableModel, stats.ReclaimAwareModel
	for name, test := range map[string]struct {
		change func(*stats.Memory)
		model  stats.MemoryModel
		cold   bool
		want   stats.Amount
	}{
		"the default counts active file pages and slab as used":       {nil, workingSet, true, stats.Known(500)},
		"the default does not ask the kernel for watermarks and swap": {func(m *stats.Memory) { m.MemAvailable = stats.Known(1) }, workingSet, false, stats.Known(500)},
		"the default leaves kernel memory out":                        {func(m *stats.Memory) { m.SlabReclaimable = stats.Known(900) }, workingSet, false, stats.Known(500)},
		"shared memory is on no list of file pages":                   {func(m *stats.Memory) { m.Usage = stats.Known(800) }, workingSet, false, stats.Known(300)},
		"a working set above the limit leaves nothing":                {func(m *stats.Memory) { m.Usage = stats.Known(5000) }, workingSet, false, stats.Known(0)},
		"huge pages come off":                                         {func(m *stats.Memory) { m.Hugetlb = stats.Known(200) }, workingSet, false, stats.Known(300)},
		"huge pages leave no less than nothing":                       {func(m *stats.Memory) { m.Hugetlb = stats.Known(700) }, workingSet, false, stats.Known(0)},
		"no limit":                                                    {func(m *stats.Memory) { m.Limit = unknown }, workingSet, false, unknown},
		"no usage":                                                    {func(m *stats.Memory) { m.Usage = unknown }, workingSet, false, unknown},
		"available is the kernel's":                                   {nil, available, false, stats.Known(640)},
		"available of a cgroup":                                       {func(m *stats.Memory) { m.MemAvailable = unknown }, available, false, stats.Known(730)},
		"available of a cgroup with hugetlb":                          {func(m *stats.Memory) { m.MemAvailable, m.Hugetlb = unknown, stats.Known(200) }, available, false, stats.Known(530)},
		"available without a limit":                                   {func(m *stats.Memory) { m.MemAvailable, m.Limit = unknown, unknown }, available, false, unknown},
		"reclaim-aware while hot":                                     {nil, aware, false, stats.Known(500)},
		"reclaim-aware while cold":                                    {nil, aware, true, stats.Known(730)},
		"no more is cold than is used":                                {func(m *stats.Memory) { m.ActiveFile = stats.Known(9000) }, aware, true, stats.Known(1000)},
		"what is cold does not make up for huge pages":                {func(m *stats.Memory) { m.Hugetlb = stats.Known(600) }, aware, true, stats.Known(130)},
		"nothing reclaimable is known":                                {func(m *stats.Memory) { m.ActiveFile, m.SlabReclaimable = unknown, unknown }, aware, true, stats.Known(500)},
	} {
		if got := machine(test.change).Available(test.model, test.cold); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestMemoryModelsAreFoundByName(t *testing.T) {
	for _, name := range stats.MemoryModels() {
		if m, ok := stats.ParseMemoryModel(name); !ok || m.String() != name {
			t.Errorf("%s is read as %v, %t", name, m, ok)
		}
	}
	if m, ok := stats.ParseMemoryModel(""); !ok || m != stats.WorkingSetModel {
		t.Errorf("the default is %v, %t", m, ok)
	}
	if _, ok := stats.ParseMemoryModel("WorkingSet"); ok {
		t.Error("the case of a name does not count")
	}
}

func TestMemoryIsColdWhileItIsNotReadBack(t *testing.T) {
	const reclaimable = 1000 << 20
	tenth := stats.Known(reclaimable / 10)
	stalled := func(some time.Duration) stats.Stall { return stats.Stall{Some: some, Known: true} }
	type reading struct {
		after     time.Duration
		refaulted stats.Amount // since the start
		stall     stats.Stall
		want      bool
	}
	for name, readings := range map[string][]reading{
		"the first reading takes it to be cold": {{0, stats.Known(5), stats.Stall{}, true}},
		"no refaults":                           {{0, stats.Known(5), stats.Stall{}, true}, {time.Second, stats.Known(5), stats.Stall{}, true}},
		"a tenth read back in a second":         {{0, stats.Known(0), stats.Stall{}, true}, {time.Second, tenth, stats.Stall{}, false}},
		"a tenth read back in ten seconds":      {{0, stats.Known(0), stats.Stall{}, true}, {10 * time.Second, tenth, stats.Stall{}, true}},
		"refaults are unknown":                  {{0, unknown, stats.Stall{}, false}, {time.Second, unknown, stats.Stall{}, false}},
		"within the window it stays":            {{0, stats.Known(0), stats.Stall{}, true}, {time.Second, stats.Known(0), stats.Stall{}, true}, {time.Second / 2, tenth, stats.Stall{}, true}, {time.Second / 2, tenth, stats.Stall{}, false}},
		"tasks wait for memory":                 {{0, stats.Known(0), stalled(0), true}, {time.Second, stats.Known(0), stalled(10 * time.Millisecond), false}},
		"tasks hardly wait for memory":          {{0, stats.Known(0), stalled(0), true}, {time.Second, stats.Known(0), stalled(9 * time.Millisecond), true}},
		"so much read back that it overflows":   {{0, stats.Known(0), stats.Stall{}, true}, {time.Second, stats.Known(1 << 62), stats.Stall{}, false}},
		"the clock goes back":                   {{0, stats.Known(0), stats.Stall{}, true}, {-time.Hour, stats.Known(0), stats.Stall{}, true}},
	} {
		var c stats.Coldness
		now := time.Unix(1000, 0)
		for i, r := range readings {
			now = now.Add(r.after)
			n := stats.Node{Time: now, Memory: stats.Memory{ActiveFile: stats.Known(reclaimable), Refaulted: r.refaulted}, MemoryStall: r.stall}
			if got := c.Observe(&n); got != r.want {
				t.Errorf("%s: reading %d is cold: %t, want %t", name, i, got, r.want)
			}
		}
	}
}

func TestATrendShowsWhenAFloorIsReached(t *testing.T) {
	// follow gives a reading each second, -1 where nothing was measured.
	follow := func(readings ...int64) stats.Trend {
		var trend stats.Trend
		for i, n := range readings {
			amount := stats.Known(n)
			if n < 0 {
				amount = unknown
			}
			trend.Observe(time.Unix(1000+int64(i), 0), amount)
		}
		return trend
	}
	steadily := func(by int64) (readings []int64) {
		for i := range int64(60) {
			readings = append(readings, 100_000+by*(59-i))
		}
		return readings
	}
	steady := follow(steadily(1000)...)
	late := follow(append(steadily(1000), -1, -1)...)
	sudden := stats.Trend{Span: 100 * time.Millisecond}
	for i, n := range []int64{2000, 2000, 2000, 1000} {
		sudden.Observe(time.Unix(1000+int64(i), 0), stats.Known(n))
	}
	back := steady
	back.Observe(time.Unix(1010, 0), stats.Known(5))
	for name, test := range map[string]struct {
		trend stats.Trend
		floor int64
		want  time.Duration // within a twentieth
		known bool
	}{
		"nothing seen":                      {stats.Trend{}, 0, 0, false},
		"one reading":                       {follow(500), 0, 0, false},
		"one reading at the floor":          {follow(500), 500, 0, true},
		"below the floor, rising":           {follow(100, 500), 600, 0, true},
		"rising":                            {follow(steadily(-1000)...), 0, 0, false},
		"level":                             {follow(500, 500, 500), 0, 0, false},
		"falling by 1000 a second":          {steady, 0, 100 * time.Second, true},
		"falling, to a nearer floor":        {steady, 90_000, 10 * time.Second, true},
		"what was not measured is no trend": {late, 0, 100 * time.Second, true},
		"a short span forgets what was":     {sudden, 0, 1100 * time.Millisecond, true},
		"an instant that does not move on":  {back, 0, 100 * time.Second, true},
		"falling so slowly that it is far":  {follow(steadily(2)...), -1_000_000, 0, false},
	} {
		got, known := test.trend.Until(test.floor)
		if off := got - test.want; known != test.known || known && (off > test.want/20 || off < -test.want/20) {
			t.Errorf("%s: %v, %t; want %v, %t", name, got, known, test.want, test.known)
		}
	}
}
