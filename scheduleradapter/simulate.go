package scheduleradapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/outoftree"
	"github.com/evictd/evictd/scheduleradapter/profile"
	"github.com/evictd/evictd/scheduleradapter/simulate"
)

func (p *program) simulateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "simulate MANIFEST...",
		Short: "Schedule the pods of a cluster given as manifests, and print the reasons",
		Long: `Run the scheduler on a cluster given as Kubernetes manifests, files or directories,
until no more pods can be scheduled, and print each decision with its reasons. Time is
simulated. MANIFEST - is standard input. If a file is invalid, nothing is scheduled.`,
		Args: cobra.MinimumNArgs(1),
	}
	flags := c.Flags()
	output := cli.OutputFlag(c, "text", "json")
	file := flags.String("config", "", "KubeSchedulerConfiguration or legacy Policy; default: kube-scheduler's default profile")
	seed := flags.Uint64("seed", 1, "seed of the selection among nodes with equal scores")
	features := flags.String("feature-gates", "", "GenericWorkload=true schedules the pods of a PodGroup together")
	end := flags.Duration("for", 0, "simulated duration; default: until no pod changes")
	c.RunE = func(c *cobra.Command, paths []string) error {
		podGroups, withoutEffect, malformed := checkFeatureGates(*features)
		cfg, faulty := loadConfig(c, *file, p.known(podGroups))
		objects, warnings, err := simulate.Load(func(name string) ([]byte, error) { return cli.ReadInput(c, name) }, paths...)
		if err = errors.Join(faulty, malformed, err); err != nil {
			return cli.BadInput(err)
		}
		if *end < 0 {
			return cli.BadInput(fmt.Errorf("--for %s: must not be negative", *end))
		}
		for _, warning := range slices.Concat(cfg.Warnings, withoutEffect, warnings, withoutProfile(objects, &cfg)) {
			fmt.Fprintf(c.ErrOrStderr(), "%s: warning: %s\n", c.Root().Name(), warning)
		}
		var until *time.Duration
		if flags.Changed("for") {
			until = end
		}
		return p.simulate(c, objects, &cfg, output.String(), *seed, until, podGroups)
	}
	return c
}

// withoutProfile has a warning for each scheduler that pods name and no profile has.
func withoutProfile(objects *simulate.Objects, cfg *config.Config) (warnings []string) {
	const named = 5
	pods := map[string][]string{}
	for _, pod := range objects.Pods {
		name := pod.Spec.SchedulerName
		pending := pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
		if pending && !slices.ContainsFunc(cfg.Profiles, func(p config.Profile) bool { return p.Name == name }) {
			pods[name] = append(pods[name], pod.Namespace+"/"+pod.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		which, more := pods[name], ""
		if len(which) > named {
			which, more = which[:named], fmt.Sprintf(" and %d others", len(which)-named)
		}
		warnings = append(warnings, fmt.Sprintf("no profile is named %s: pods that are not scheduled: %s%s", name, strings.Join(which, ", "), more))
	}
	return warnings
}

func (p *program) simulate(c *cobra.Command, objects *simulate.Objects, cfg *config.Config, format string, seed uint64, until *time.Duration, podGroups bool) error {
	var report simulate.Reporter = simulate.NewText(c.OutOrStdout())
	if format == "json" {
		report = simulate.NewJSON(c.OutOrStdout())
	}
	out, errs := c.OutOrStdout(), c.ErrOrStderr()
	progress := cli.NewProgress(errs, cli.Terminal(errs) && (format == "text" || !cli.Terminal(out)), "pods attempted")
	defer progress.End()
	counter := &progressReporter{Reporter: report, progress: progress}
	for _, pod := range objects.Pods {
		if pod.Spec.NodeName == "" {
			counter.all++
		}
	}
	report = counter
	for i := range cfg.Extenders {
		cfg.Extenders[i].BindVerb = "" // extenders filter and score, but do not bind
	}
	s, err := p.newSimulation(c.Context(), objects, cfg, simulate.Config{
		PodGroups: podGroups, InitialBackoff: cfg.PodInitialBackoff, MaxBackoff: cfg.PodMaxBackoff, For: until, Random: rand.New(rand.NewPCG(seed, seed)),
	}, report, slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil)))
	if err != nil {
		return err
	}
	return s.Run(c.Context())
}

// newSimulation makes a simulation with the profiles of a configuration. The error is the
// caller's fault.
func (p *program) newSimulation(ctx context.Context, objects *simulate.Objects, cfg *config.Config, with simulate.Config, report simulate.Reporter, log *slog.Logger) (*simulate.Simulation, error) {
	var host *outoftree.Host
	with.Assemble = func(env framework.Env, stores profile.Stores) (profiles []cycle.Profile, err error) {
		if host, err = p.host(ctx, cfg, env.Table, outoftree.API{Missing: "there is no API server in simulate"}, log); err != nil {
			return nil, err
		}
		profiles, err = profile.New(cfg, env, stores, host, log)
		return profiles, inConfig(cfg, err)
	}
	with.Assembled = func(owner outoftree.Owner) { host.Attach(owner) }
	s, err := simulate.New(objects, with, report)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	return s, nil
}

// progressReporter shows the number of attempted pods on a terminal.
type progressReporter struct {
	simulate.Reporter
	progress       *cli.Progress
	attempted, all int
}

// Attempt counts the first attempt of each pod.
func (c *progressReporter) Attempt(a *simulate.Attempt) {
	if a.Number == 1 {
		if c.attempted++; c.attempted%(c.all/100+1) == 0 {
			c.progress.Set(c.attempted, c.all)
		}
	}
	c.Reporter.Attempt(a)
}

// End removes the progress bar before the report.
func (c *progressReporter) End(s simulate.Summary) error {
	c.progress.End()
	return c.Reporter.End(s)
}

// host makes the host of the out-of-tree plugins; nil: there are none.
func (p *program) host(ctx context.Context, cfg *config.Config, table *nodetable.Table, api outoftree.API, log *slog.Logger) (*outoftree.Host, error) {
	if len(p.plugins) == 0 {
		return nil, nil
	}
	return outoftree.New(ctx, outoftree.Config{Plugins: p.plugins, Table: table, Parallelism: cfg.Parallelism, API: api, Log: log})
}

// loadConfig reads and compiles a configuration file; an empty name is the default
// profile. Each fault is prefixed with the name of the file.
func loadConfig(c *cobra.Command, name string, plugins []config.Plugin, overrides ...func(*config.File)) (config.Config, error) {
	var file config.File
	var loading error
	if name != "" {
		data, err := cli.ReadInput(c, name)
		if err != nil {
			return config.Config{}, err
		}
		file, loading = config.Load(data, os.Getenv(config.MaxVolumesVariable), plugins)
	}
	for _, override := range overrides {
		override(&file)
	}
	cfg, compiling := config.Compile(&file, plugins)
	cfg.File = name
	return cfg, inConfig(&cfg, errors.Join(loading, compiling))
}

// inConfig names the file of a configuration in each fault of it.
func inConfig(cfg *config.Config, err error) error { return cli.InFile(cmp.Or(cfg.File, "flags"), err) }
