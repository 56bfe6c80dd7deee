package daemon

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/nodestatus"
)

// errNoRestarts refuses containerPressure: restart where a container that has ended would stay so.
var errNoRestarts = errors.New("containerPressure: restart: no kubelet runs here that starts containers again, and evictd starts none; expected evict, or a mode beside a kubelet")

// checkRestarts refuses restarts of containers in native mode without a kubelet.
func (d *Daemon) checkRestarts(compiled *config.Config) error {
	if compiled.Eviction.Restarts.BackOff > 0 && d.node.mode == nodestatus.Native && FindKubelet() == 0 {
		return errNoRestarts
	}
	return nil
}

// withoutContainers says why no container can be ended alone.
func (d *Daemon) withoutContainers() string {
	if d.node.cgroups == nil {
		return "the pods of a virtual node have no cgroups"
	}
	return ""
}

// Validate reports all faults of the settings of a run together. It does not look at the
// node.
func Validate(file *config.EvictdConfiguration) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if s := file.SoftEviction; s != "" && s != softAPI && s != softDirect {
		fault("--soft-eviction %q: expected api or direct", s)
	}
	if file.SoftEviction == softAPI && !hasAPI(&file.Run) {
		fault("--soft-eviction api: needs an API server; expected --kubeconfig or --server beside it")
	}
	if a := file.AgentAddress; a != "" && !strings.HasPrefix(a, "unix:/") {
		fault("--agent-address %q: expected unix: and an absolute path", a)
	}
	if file.SoftEvictionDeadline.Duration < 0 {
		fault("--soft-eviction-deadline %v: must not be negative", file.SoftEvictionDeadline.Duration)
	}
	if err := RuntimeEndpoint(file.CRIEndpoint).Check(); err != nil {
		faults = append(faults, err)
	}
	for _, dir := range runcState(&file.Run) {
		if _, err := filepath.Match(dir, ""); err != nil || !filepath.IsAbs(dir) {
			fault("--runc-state %q: expected absolute paths separated by commas, or none", file.RuncState)
		}
	}
	if file.HousekeepingInterval.Duration < 0 {
		fault("--housekeeping-interval %v: must not be negative", file.HousekeepingInterval.Duration)
	}
	if g := file.HardEvictionGracePeriod; g != nil && (g.Duration < 0 || g.Duration > LongestHardGrace) {
		fault("--hard-eviction-grace-period %v: expected 0s to %v", g.Duration, LongestHardGrace)
	}
	return errors.Join(faults...)
}
