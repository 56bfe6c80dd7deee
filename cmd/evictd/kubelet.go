package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// kubeletFindings say whether the kubelet of this host or the running daemon evicts first; none
// without a kubelet.
func kubeletFindings(ctx context.Context, client *serve.Client, proc string, found daemon.Kubelet) []finding {
	const name = "thresholds beside the kubelet"
	if !found.Found() {
		return nil
	}
	kubelet, err := config.Config{}, fmt.Errorf("the command line of %s has none", found.Program)
	if found.Program == "kubelet" {
		kubelet, err = kubeletConfiguration(filepath.Join(proc, strconv.Itoa(found.PID)))
	}
	if err != nil {
		return []finding{{name, false, fmt.Sprintf("the configuration of the kubelet, pid %d: %v", found.PID, err), "which of the two evicts first is not known"}}
	}
	status, err := standing(ctx, client)
	if err != nil {
		return []finding{{name, false, "no running evictd to ask: " + err.Error(), "which of the two evicts first is not known"}}
	}
	before, after := compareThresholds(&kubelet, &status)
	ok, lost := len(before) == 0 || !status.Mode.Acts(), "the kubelet evicts before evictd does, or beside it: docs/modes.md has its configuration for each mode"
	switch {
	case len(before) > 0:
		return []finding{about(name, "the kubelet evicts first for "+strings.Join(before, "; "), ok, lost)}
	case len(after) > 0:
		return []finding{about(name, "evictd evicts first: "+strings.Join(after, "; "), ok, lost)}
	}
	return []finding{about(name, "the kubelet has none", ok, lost)}
}

// compareThresholds lists the signals for which the kubelet evicts before evictd, and the other
// signals with a threshold of the kubelet. In takeover the kubelet should have none.
func compareThresholds(kubelet *config.Config, status *nodestatus.Status) (before, after []string) {
	for _, signal := range eviction.Signals() {
		at := slices.IndexFunc(status.Signals, func(s nodestatus.SignalStatus) bool { return s.Name == signal.String() })
		if at < 0 || signal == eviction.AllocatableMemoryAvailable { // a copy of the hard memory.available
			continue
		}
		theirs, ours := int64(0), int64(0) // their highest, evictd's lowest
		o := eviction.Observation{Capacity: quantityOf(status.Signals[at].Capacity)}
		for i := range kubelet.Eviction.Thresholds {
			if t := &kubelet.Eviction.Thresholds[i]; t.Signal == signal {
				required, _ := t.Value.Of(o)
				theirs = max(theirs, required)
			}
		}
		for _, t := range status.Signals[at].Thresholds {
			if required, known := quantityOf(t.Quantity).Get(); known && (ours == 0 || required < ours) {
				ours = required
			}
		}
		own := "no threshold"
		if ours > 0 {
			own = signal.Rounded(ours)
		}
		line := fmt.Sprintf("%v, kubelet %s, evictd %s", signal, signal.Rounded(theirs), own)
		switch {
		case theirs == 0:
		case theirs >= ours || status.Mode == nodestatus.Takeover:
			before = append(before, line)
		default:
			after = append(after, line)
		}
	}
	return before, after
}

// quantityOf is an amount of the status document; unknown where it has none.
func quantityOf(text string) stats.Amount {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return stats.Amount{}
	}
	return stats.Known(q.Value())
}

// kubeletConfiguration reads the configuration of a running kubelet: its file, the drop-in
// directory, and its flags, which win. process is its directory in procfs.
func kubeletConfiguration(process string) (compiled config.Config, err error) {
	line, err := os.ReadFile(filepath.Join(process, "cmdline"))
	if err != nil {
		return compiled, err
	}
	flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	given := kubeletFlags(flags)
	file, dropIns := flags.String("config", "", ""), flags.String("config-dir", "", "")
	if err := flags.Parse(strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")[1:]); err != nil {
		return compiled, err
	}
	var base []byte
	if *file != "" {
		if base, err = os.ReadFile(seenBy(process, *file)); err != nil {
			return compiled, err
		}
	}
	var documents [][]byte
	if *dropIns != "" {
		if err := filepath.WalkDir(seenBy(process, *dropIns), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".conf" {
				return err
			}
			text, err := os.ReadFile(path)
			documents = append(documents, text)
			return err
		}); err != nil {
			return compiled, err
		}
	}
	c, err := config.LoadKubelet(base, documents)
	if err != nil {
		return compiled, err
	}
	given.apply(&c)
	return config.Compile(&c, nil)
}

// seenBy is a path of a process, whose root may be another one.
func seenBy(process, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Join(process, "root", path)
	}
	return filepath.Join(process, "cwd", path)
}
