package scheduleradapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/outoftree"
	"github.com/evictd/evictd/scheduleradapter/plugins/volumes"
	"github.com/evictd/evictd/scheduleradapter/simulate"
)

func (p *program) simulateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "simulate MANIFEST...",
		Short: "Schedule the pods of a cluster given as manifests, and say why they go where",
		Long: `Run the scheduler over a cluster given as Kubernetes manifests, files or directories,
until nothing more can be scheduled, and print every decision with its reasons. Time
is simulated. Nothing is printed if any file is invalid.`,
		Args: cobra.MinimumNArgs(1),
	}
	flags := c.Flags()
	output := cli.OutputFlag(c, "text", "json")
	file := flags.String("config", "", "KubeSchedulerConfiguration or legacy Policy; without it kube-scheduler's default profile")
	seed := flags.Uint64("seed", 1, "of the choice among equal nodes")
	end := flags.Duration("for", 0, "simulated time to run; without it until nothing is left to do")
	c.RunE = func(c *cobra.Command, paths []string) error {
		cfg, faulty := loadConfig(*file, p.known())
		objects, warnings, err := simulate.Load(paths...)
		if err = errors.Join(faulty, err); err != nil {
			return cli.BadInput(err)
		}
		if *end < 0 {
			return cli.BadInput(fmt.Errorf("--for %s: must not be negative", *end))
		}
		for _, warning := range append(cfg.Warnings, warnings...) {
			fmt.Fprintf(c.ErrOrStderr(), "%s: warning: %s\n", c.Root().Name(), warning)
		}
		var until *time.Duration
		if flags.Changed("for") {
			until = end
		}
		return p.play(c, objects, &cfg, output.String(), *seed, until)
	}
	return c
}

func (p *program) play(c *cobra.Command, objects *simulate.Objects, cfg *config.Config, format string, seed uint64, until *time.Duration) error {
	var report simulate.Reporter = simulate.NewText(c.OutOrStdout())
	if format == "json" {
		report = simulate.NewJSON(c.OutOrStdout())
	}
	out, errs := c.OutOrStdout(), c.ErrOrStderr()
	progress := cli.NewProgress(errs, cli.Terminal(errs) && (format == "text" || !cli.Terminal(out)), "pods tried")
	defer progress.End()
	tries := &counted{Reporter: report, progress: progress}
	for _, pod := range objects.Pods {
		if pod.Spec.NodeName == "" {
			tries.all++
		}
	}
	report = tries
	for i := range cfg.Extenders {
		cfg.Extenders[i].BindVerb = "" // services may be asked, and nothing is done
	}
	log := slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
	var host *outoftree.Host
	s, err := simulate.New(objects, simulate.Config{
		Assemble: func(env framework.Env, storage *volumes.Storage) (profiles []cycle.Profile, err error) {
			if host, err = p.host(c.Context(), cfg, env.Table, outoftree.API{Missing: "there is no API server in simulate"}, log); err != nil {
				return nil, err
			}
			return Profiles(cfg, env, storage, host, log)
		},
		Assembled:      func(owner outoftree.Owner) { host.Attach(owner) },
		InitialBackoff: cfg.PodInitialBackoff,
		MaxBackoff:     cfg.PodMaxBackoff,
		For:            until,
		Random:         rand.New(rand.NewPCG(seed, seed)),
	}, report)
	if err != nil {
		return cli.BadInput(err)
	}
	return s.Run(c.Context())
}

// counted shows on a terminal how many of the pods were tried, which on a large
// cluster takes a while; a report that comes at the end comes after it.
type counted struct {
	simulate.Reporter
	progress   *cli.Progress
	tried, all int
}

// Attempt counts the first one of each pod.
func (c *counted) Attempt(a *simulate.Attempt) {
	if a.Number == 1 {
		if c.tried++; c.tried%(c.all/100+1) == 0 {
			c.progress.Set(c.tried, c.all)
		}
	}
	c.Reporter.Attempt(a)
}

// End takes the bar away first.
func (c *counted) End(s simulate.Summary) error {
	c.progress.End()
	return c.Reporter.End(s)
}

// host runs the plugins that were compiled in; nil without any.
func (p *program) host(ctx context.Context, cfg *config.Config, table *nodetable.Table, api outoftree.API, log *slog.Logger) (*outoftree.Host, error) {
	if len(p.plugins) == 0 {
		return nil, nil
	}
	return outoftree.New(ctx, outoftree.Config{Plugins: p.plugins, Table: table, Parallelism: cfg.Parallelism, API: api, Log: log})
}

// loadConfig reads and completes a configuration file, which may name the plugins;
// no file stands for the default profile. Every fault of a file has its name before it.
func loadConfig(name string, plugins []config.Plugin) (config.Config, error) {
	var file config.File
	var loading error
	if name != "" {
		data, err := os.ReadFile(name)
		if err != nil {
			return config.Config{}, err
		}
		file, loading = config.Load(data, os.Getenv(config.MaxVolumesVariable))
	}
	cfg, compiling := config.Compile(&file, plugins)
	return cfg, cli.InFile(name, errors.Join(loading, compiling))
}
