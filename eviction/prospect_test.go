package eviction_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// rule: M.127
func TestEachStepSaysWhetherItMayBeTakenOnAPod(t *testing.T) {
	const mib = 1 << 20
	now := time.Unix(1000, 0)
	asks := eviction.Notify{Warning: 10}
	configured := eviction.Config{
		Warnings:       eviction.Warnings{Namespaces: []string{"n"}, Lead: 5 * time.Second},
		MemoryReclaims: eviction.MemoryReclaims{Budget: mib, Step: mib, Attempts: 1}, ThrottlePeriod: 5 * time.Second,
	}
	restarts := eviction.Config{Restarts: eviction.Restarts{BackOff: time.Minute}}
	two := func(rule eviction.RestartRule) []eviction.Container {
		return []eviction.Container{{Name: "a"}, {Name: "b", Restart: rule}}
	}
	const may = "restart true where it is the victim for memory, and one of its containers alone uses what the pod uses above its request"
	const again = "it was throttled less than a minute ago"
	for _, c := range []struct {
		name string
		cfg  eviction.Config
		pod  eviction.Pod
		st   eviction.State
		want string
	}{
		{"nothing is configured", eviction.Config{}, eviction.Pod{}, eviction.State{}, ""},
		{"above its request", configured, eviction.Pod{Namespace: "n", Notify: asks, MemoryRequest: 10 * mib}, eviction.State{},
			"warn true where memory is short, or a container of it reaches its limit within 5s\n" +
				"reclaim true where a soft threshold of memory is crossed: it is 90Mi above its request\n" +
				"throttle true where it causes half of a fall that reaches a hard threshold of memory within 5s: it grows by 2Mi a second"},
		{"within its request", configured, eviction.Pod{Namespace: "m", Notify: asks, MemoryRequest: 100 * mib}, eviction.State{},
			"warn false notices are not configured for its namespace\nreclaim false it is not above its request\nthrottle false it is not above its request"},
		{"static", configured, eviction.Pod{Protection: eviction.StaticPod}, eviction.State{},
			"warn false it asks for no notice\nreclaim false static pod\nthrottle false static pod"},
		{"without page cache, and throttled not long ago", configured, eviction.Pod{Namespace: "n", Notify: asks},
			eviction.State{
				Round:     eviction.ReclaimRound{Pods: []eviction.PodMemory{{UID: "p", WorkingSet: 100 * mib, PageCache: 1}}},
				Throttled: eviction.Throttled{Last: eviction.StoppedReclaim{UID: "p", Until: now.Add(time.Second)}},
			},
			"warn true where memory is short, or a container of it reaches its limit within 5s\nreclaim false it has no page cache\nthrottle false " + again},
		{"a container that is started again", restarts, eviction.Pod{Containers: two(eviction.RestartedIfKilled)}, eviction.State{}, may},
		{"no container is started again", restarts, eviction.Pod{Containers: two(eviction.NotRestarted)}, eviction.State{},
			"restart false a kubelet starts none of its containers again, or they write to a volume in memory"},
		{"one container", restarts, eviction.Pod{Containers: two(eviction.AlwaysRestarted)[1:]}, eviction.State{}, "restart false it has no other container"},
		{"restarted not long ago", restarts, eviction.Pod{Containers: two(eviction.AlwaysRestarted)}, eviction.State{Restarts: []eviction.RestartedContainer{{UID: "p", At: now}}},
			"restart false one of its containers was restarted less than 1m0s ago"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.pod.UID = "p"
			in := eviction.Input{Now: now, Candidates: []eviction.Candidate{{Pod: &c.pod, Usage: &stats.Pod{Memory: stats.Known(100 * mib)}, Growth: 2 * mib}}}
			var got []string
			for _, p := range c.st.Prospects(&c.cfg, &in, &in.Candidates[0]) {
				got = append(got, fmt.Sprint(p.Step, " ", p.May, " ", p.Because))
			}
			if text := strings.Join(got, "\n"); text != c.want {
				t.Errorf("got\n%s\nwant\n%s", text, c.want)
			}
		})
	}
}
