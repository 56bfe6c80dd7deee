package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/test/controlplane/apiserver"
)

// The lines that test/controlplane/parts/cmd/kubelet-config reads and writes.
type (
	started struct {
		Base    string
		DropIns []string
		Flags   []string
	}
	loaded struct {
		Config *kubeletconfig.KubeletConfiguration
		Error  string
	}
)

// TestLoadingOfRandomFiles compares what evictd takes from a kubelet's files and flags with what the kubelet takes, until
// the kubelet has started with 1,000 of them.
//
// rule: M.194
func TestLoadingOfRandomFiles(t *testing.T) {
	kubelet := apiserver.StartPeer(t, "kubelet-config")
	starts := 0
	for seed := uint64(0); starts < 1000; seed++ {
		s := randomStart(rand.New(rand.NewPCG(seed, 0)))
		var theirs loaded
		kubelet.Ask(s, &theirs)
		if theirs.Error == "" {
			starts++
		}
		ours, err := s.load()
		switch {
		case (err != nil) != (theirs.Error != ""):
			t.Errorf("seed %d: evictd: %v\nkubelet: %s\n%+v", seed, err, theirs.Error, *s)
		case err == nil && evictionFields(t, ours) != evictionFields(t, theirs.Config):
			t.Errorf("seed %d:\nevictd:  %s\nkubelet: %s\n%+v", seed, evictionFields(t, ours), evictionFields(t, theirs.Config), *s)
		}
	}
}

// load reads what a kubelet is started with as evictd doctor does.
func (s *started) load() (c config.EvictdConfiguration, err error) {
	var base []byte
	if s.Base != "" {
		base = []byte(s.Base)
	}
	var dropIns [][]byte
	for _, text := range s.DropIns {
		dropIns = append(dropIns, []byte(text))
	}
	if c, err = config.LoadKubelet(base, dropIns); err != nil {
		return c, err
	}
	flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	given := kubeletFlags(flags)
	if err := flags.Parse(s.Flags); err != nil {
		return c, err
	}
	given.apply(&c)
	return c, nil
}

// evictionFields are the fields of evictions, with the kubelet's defaults, as text.
func evictionFields(t *testing.T, c any) string {
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for name, otherwise := range map[string]string{
		"evictionHard": "", "evictionSoft": "", "evictionSoftGracePeriod": "", "evictionMinimumReclaim": "", "systemReserved": "", "kubeReserved": "",
		"evictionMaxPodGracePeriod": "0", "evictionPressureTransitionPeriod": "5m0s", "nodeStatusUpdateFrequency": "10s",
	} {
		value := ""
		switch is := fields[name].(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(is)) {
				value += fmt.Sprintf("%s=%v,", key, is[key])
			}
		case nil:
		default:
			value = fmt.Sprint(is)
		}
		if value == "" || value == "0s" {
			value = otherwise
		}
		lines = append(lines, name+": "+value)
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

// randomStart makes what a kubelet is started with: some of it with fields that are not known, null, and keys twice.
func randomStart(r *rand.Rand) *started {
	s := &started{}
	if r.IntN(8) > 0 {
		s.Base = randomFile(r, false)
	}
	if r.IntN(3) > 0 {
		s.DropIns = []string{}
		for range r.IntN(4) {
			s.DropIns = append(s.DropIns, randomFile(r, true))
		}
	}
	for range r.IntN(4) {
		s.Flags = append(s.Flags, pick(r,
			"--eviction-hard="+thresholds(r, "<"), "--eviction-soft="+thresholds(r, "<"), "--eviction-minimum-reclaim="+thresholds(r, "="),
			"--eviction-soft-grace-period=memory.available=1m,nodefs.available=2m", "--eviction-max-pod-grace-period=30",
			"--eviction-pressure-transition-period=90s", "--system-reserved=memory=1Gi", "--kube-reserved=cpu=1,memory=2Gi", "--node-status-update-frequency=7s"))
	}
	return s
}

func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

func aThreshold(r *rand.Rand) (signal, value string) {
	return pick(r, "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "pid.available"),
		pick(r, "1%", "5%", "10%", "0%", "100Mi", "1Gi")
}

// thresholds are one to three entries of a flag, with a signal twice now and then.
func thresholds(r *rand.Rand, separator string) string {
	var entries []string
	for range 1 + r.IntN(3) {
		signal, value := aThreshold(r)
		entries = append(entries, signal+separator+value)
	}
	return strings.Join(entries, ",")
}

// randomFile is a file of the kubelet, or a drop-in.
func randomFile(r *rand.Rand, dropIn bool) string {
	var text strings.Builder
	text.WriteString("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
	table := func(entries ...string) string {
		if dropIn && r.IntN(6) == 0 {
			return " null"
		}
		keys := map[string]string{}
		for range r.IntN(3) {
			name, value, _ := strings.Cut(pick(r, entries...), "=")
			if dropIn && r.IntN(4) == 0 {
				value = "null"
			}
			keys[name] = value
		}
		var all []string
		for _, name := range slices.Sorted(maps.Keys(keys)) {
			all = append(all, name+": "+keys[name])
		}
		return " {" + strings.Join(all, ", ") + "}"
	}
	signals := func() string {
		var entries []string
		for range 4 {
			signal, value := aThreshold(r)
			entries = append(entries, signal+"="+value)
		}
		return table(entries...)
	}
	for _, f := range []struct {
		name  string
		value func() string
	}{
		{"evictionHard", signals}, {"evictionSoft", signals}, {"evictionMinimumReclaim", signals},
		{"evictionSoftGracePeriod", func() string { return table("memory.available=1m", "nodefs.available=2m", "pid.available=3m") }},
		{"systemReserved", func() string { return table("memory=1Gi", "cpu=500m") }},
		{"kubeReserved", func() string { return table("memory=2Gi", "ephemeral-storage=1Gi") }},
		{"mergeDefaultEvictionSettings", func() string { return " " + pick(r, "true", "false", "null") }},
		{"evictionMaxPodGracePeriod", func() string { return " " + pick(r, "0", "30", "null") }},
		{"evictionPressureTransitionPeriod", func() string { return " " + pick(r, "0s", "2m", "null") }},
		{"nodeStatusUpdateFrequency", func() string { return " " + pick(r, "0s", "5s", "null") }},
		{"ofALaterVersion", func() string { return " {a: 1}" }},
		{"metadata", func() string { return " {name: a}" }},
	} {
		for range r.IntN(2) + r.IntN(16)/15 {
			text.WriteString(f.name + ":" + f.value() + "\n")
		}
	}
	return text.String()
}
