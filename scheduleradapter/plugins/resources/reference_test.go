package resources

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

// reference has the allocatable and requested amounts by node and resource.
type reference map[string]map[v1.ResourceName][2]int64

var counted = []v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, foo}

func amounts(list v1.ResourceList, name v1.ResourceName) int64 {
	q := list[name]
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func (w reference) set(node string, allocatable v1.ResourceList, running ...v1.ResourceList) {
	w[node] = map[v1.ResourceName][2]int64{}
	for _, name := range counted {
		requested := int64(0)
		for _, r := range running {
			requested += amounts(r, name)
		}
		if name == v1.ResourcePods {
			requested = int64(len(running))
		}
		w[node][name] = [2]int64{amounts(allocatable, name), requested}
	}
}

// rejected has the missing resources by node.
func (w reference) rejected(asks v1.ResourceList) map[string]string {
	all := map[string]string{}
	for node, has := range w {
		var lacks []string
		never := ""
		for _, name := range counted {
			request := amounts(asks, name)
			if name == v1.ResourcePods {
				request = 1
			}
			if request == 0 || has[name][0]-has[name][1] >= request {
				continue
			}
			if name == v1.ResourcePods {
				lacks = append(lacks, "Too many pods")
				continue
			}
			lacks = append(lacks, "Insufficient "+string(name))
			if has[name][0] < request {
				never = "never: "
			}
		}
		if len(lacks) > 0 {
			all[node] = never + strings.Join(lacks, ", ")
		}
	}
	return all
}

// average of the free or used shares. Every container requests cpu and memory.
func (w reference) average(node string, asks v1.ResourceList, resources []config.ResourceSpec, free bool) int64 {
	sum, weights := int64(0), int64(0)
	for _, r := range resources {
		has, request := w[node][v1.ResourceName(r.Name)], amounts(asks, v1.ResourceName(r.Name))
		if has[0] == 0 || r.Name == foo && request == 0 {
			continue
		}
		share := min(has[1]+request, has[0])
		if free {
			share = has[0] - share
		}
		sum, weights = sum+r.Weight*(share*100/has[0]), weights+r.Weight
	}
	return sum / max(weights, 1)
}

func (w reference) balance(node string, asks v1.ResourceList) int64 {
	after := func(pods int64) int64 {
		var used []float64
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			if has := w[node][name]; has[0] != 0 {
				used = append(used, min(float64(has[1]+pods*amounts(asks, name))/float64(has[0]), 1))
			}
		}
		if len(used) < 2 {
			return 100
		}
		return int64((1 - math.Abs((used[0]-used[1])/2)) * 100)
	}
	return 50 + (50+after(1)-after(0))/2
}

func TestResourcesSayWhatTheReferenceDoes(t *testing.T) {
	compareWithReference(t, 20)
}

func TestCampaignResourcesSayWhatTheReferenceDoes(t *testing.T) {
	campaign.Only(t)
	compareWithReference(t, campaign.Size(1000, 20))
}

// compareWithReference makes enough nodes for several words of a set: free, full, and
// without a resource.
func compareWithReference(t *testing.T, clusters int) {
	random := rand.New(rand.NewPCG(5, 5))
	dice := plugintest.Dice{Random: random}
	said := map[string]int{}
	most := strategy(config.MostAllocated, specs("cpu", 2, "memory", 1, foo, 3))
	for range clusters {
		cluster, w := plugintest.New(t), reference{}
		fit, packing, balanced := cluster.Make(NewFit, leastArgs), cluster.Make(NewFit, most), cluster.Make(NewBalanced, balancedArgs)
		some := func(scale int) v1.ResourceList {
			return list("cpu", fmt.Sprint(1+random.IntN(scale)), "memory", fmt.Sprint(1+random.IntN(1000*scale), "Mi"),
				"ephemeral-storage", fmt.Sprint(random.IntN(scale)), foo, fmt.Sprint(random.IntN(2)*random.IntN(scale)))
		}
		change := func(i int) {
			name := fmt.Sprint("n", i)
			has := some(12)
			if dice.Chance(5) {
				delete(has, plugintest.Pick(dice, v1.ResourceCPU, v1.ResourceMemory))
			}
			n := node(name, has)
			cluster.Table.SetNode(nodetable.NewNode(n))
			running := make([]v1.ResourceList, random.IntN(4))
			for p := range 3 {
				cluster.Table.Displace(types.UID(fmt.Sprint(name, "-", p)))
			}
			for p := range running {
				running[p] = some(4)
				cluster.Place(pod(fmt.Sprint(name, "-", p), running[p]), name)
			}
			w.set(name, n.Status.Allocatable, running...)
		}
		nodes := 1 + random.IntN(200)
		for i := range nodes {
			change(i)
		}
		asks := some(5)
		for range 20 {
			if dice.Chance(30) { // otherwise the memo of the shape is used
				asks = some(5)
			}
			p := cluster.Digest(pod("p", asks))
			rejected := w.rejected(asks)
			v := cluster.Evaluate(fit, p)
			scores, packed, balances := map[string]int64{}, map[string]int64{}, map[string]int64{}
			for name := range w {
				balances[name] = w.balance(name, asks)
				if rejected[name] == "" {
					scores[name], packed[name] = w.average(name, asks, cpuAndMemory, true), w.average(name, asks, most.ScoringStrategy.Resources, false)
				}
			}
			v.Holds(t, "least allocated", rejected, scores)
			cluster.Evaluate(packing, p).Holds(t, "most allocated", rejected, packed)
			plugintest.Equal(t, "balanced", cluster.Evaluate(balanced, p).Scores, balances)
			for reason := range maps.Values(rejected) {
				said[reason]++
			}
			change(random.IntN(nodes))
		}
	}
	t.Log(said)
}
