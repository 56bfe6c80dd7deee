package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/kubeclient/address"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/nodestatus"
)

// control is the configuration of the loop.
func (d *Daemon) control(file *config.EvictdConfiguration, compiled *config.Config) control.Config {
	c := control.Config{
		Eviction:             eviction.New(compiled.Eviction, d.node.layout()),
		MemoryModel:          compiled.MemoryModel,
		Processors:           int(d.node.capacity.Cpu().Value()),
		HousekeepingInterval: defaultHousekeeping,
	}
	c.Eviction.HardGrace, c.Eviction.DryRun, c.Eviction.MeasuresRelief = LongestHardGrace, d.dryRun, true
	if d.cluster != nil {
		c.Eviction.SoftPatience = d.cluster.soft.Patience
	}
	without := func(field string, is bool, why string) bool {
		if is && why != "" && !d.dryRun {
			d.log.Warn(field+" has no effect", "reason", why)
		}
		return why != ""
	}
	if without("memoryReclaimBudget", c.Eviction.MemoryReclaims.Budget > 0, d.withoutMemoryReclaim()) {
		c.Eviction.MemoryReclaims = eviction.MemoryReclaims{}
	}
	if without("resizeNamespaces", len(c.Eviction.Resizes.Namespaces) > 0, d.withoutResizes()) {
		c.Eviction.Resizes = eviction.Resizes{}
	}
	if without("containerPressure: restart", c.Eviction.Restarts.BackOff > 0, d.withoutContainers()) {
		c.Eviction.Restarts = eviction.Restarts{}
	}
	if without("memoryThrottlePeriod", c.Eviction.ThrottlePeriod > 0, d.withoutThrottle()) {
		c.Eviction.ThrottlePeriod = 0
	}
	if stalls := c.Eviction.MemoryStallWindow > 0; !without("memory.stall", stalls, d.withoutStalls()) && stalls && d.node.cgroups.Version() == cgroup.V1 {
		d.log.Info("memory.stall is that of the machine alone, and pods rank for it by what they read back: cgroup v1 has no stalls of cgroups")
	}
	if file.HousekeepingInterval.Duration > 0 {
		c.HousekeepingInterval = file.HousekeepingInterval.Duration
	}
	if g := file.HardEvictionGracePeriod; g != nil {
		c.Eviction.HardGrace = g.Duration
	}
	return c
}

// errNoRestarts refuses containerPressure: restart where a container that has ended would stay so.
var errNoRestarts = errors.New("containerPressure: restart: no kubelet runs here that starts containers again, and evictd starts none; expected evict, or a mode beside a kubelet")

// checkRestarts refuses restarts of containers in native mode without a kubelet.
func (d *Daemon) checkRestarts(compiled *config.Config) error {
	if compiled.Eviction.Restarts.BackOff > 0 && d.node.alone() {
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

// withoutResizes says why no container can be resized.
func (d *Daemon) withoutResizes() string {
	if !d.cluster.speaksToAPI() {
		return "there is no API server"
	}
	return ""
}

// withoutStalls says what is missing for memory.stall; "" if nothing is.
func (d *Daemon) withoutStalls() string {
	if d.node.cgroups == nil {
		return "the memory of the node is not that of cgroups"
	}
	if _, err := os.ReadFile(d.node.collect.Host + "/proc/pressure/memory"); err != nil {
		return "the kernel has no pressure stall information: " + err.Error()
	}
	return ""
}

// Check compiles a configuration, and reports all of its faults together, as a cli.BadInput. It does
// not look at the node: CheckHost does.
func Check(file *config.EvictdConfiguration) (config.Config, error) {
	compiled, err := config.Compile(file, nil)
	if err := errors.Join(err, validate(file)); err != nil {
		return compiled, cli.BadInput(err)
	}
	return compiled, nil
}

// CheckHost reports what New would refuse on this host, and changes nothing. It does not ask whether
// the user may end pods.
func CheckHost(cfg Config) error {
	cfg.checks = true
	_, err := New(cfg, slog.New(slog.DiscardHandler))
	return err
}

// validate reports the faults of the settings of a run.
func validate(file *config.EvictdConfiguration) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if _, err := nodestatus.ParseMode(file.Mode); err != nil && file.Mode != "" {
		fault("--mode: %w", err)
	}
	if q, err := resource.ParseQuantity(file.NodeMemory); file.NodeMemory != "" && (err != nil || q.Sign() <= 0) {
		fault("--node-memory %q: expected a positive quantity such as 4Gi", file.NodeMemory)
	}
	if file.NodeMemory != "" && file.CgroupRoot != "" {
		fault("--node-memory and --cgroup-root exclude each other: the memory is either given or measured")
	}
	faults = append(faults, address.Check(file.Kubeconfig, file.Server))
	faults = append(faults, serve.Check("status-address", statusAddress(file), statusTLS(file)))
	if s := file.SoftEviction; s != "" && s != softAPI && s != softDirect && s != softRequest {
		fault("--soft-eviction %q: expected api, request or direct", s)
	}
	if s := file.SoftEviction; (s == softAPI || s == softRequest) && !hasAPI(&file.Run) {
		fault("--soft-eviction %s: needs an API server; expected --kubeconfig or --server beside it", s)
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

func statusAddress(file *config.EvictdConfiguration) string {
	return cmp.Or(file.StatusAddress, DefaultStatusAddress)
}

func statusTLS(file *config.EvictdConfiguration) *serve.TLS {
	return &serve.TLS{CertFile: file.StatusTLSCertFile, KeyFile: file.StatusTLSPrivateKeyFile, ClientCAFile: file.StatusClientCAFile}
}
