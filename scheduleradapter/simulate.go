package scheduleradapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/plugins/volumes"
	"github.com/evictd/evictd/scheduleradapter/simulate"
)

func simulateCommand() *cobra.Command {
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
	file := flags.String("config", "", "KubeSchedulerConfiguration; without it kube-scheduler's default profile")
	seed := flags.Uint64("seed", 1, "of the choice among equal nodes")
	end := flags.Duration("for", 0, "simulated time to run; without it until nothing is left to do")
	c.RunE = func(c *cobra.Command, paths []string) error {
		cfg, faulty := loadConfig(*file)
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
		return play(c.Context(), c.OutOrStdout(), objects, &cfg, output.String(), *seed, until)
	}
	return c
}

func play(ctx context.Context, out io.Writer, objects *simulate.Objects, cfg *config.Config, format string, seed uint64, until *time.Duration) error {
	var report simulate.Reporter = simulate.NewText(out)
	if format == "json" {
		report = simulate.NewJSON(out)
	}
	s, err := simulate.New(objects, simulate.Config{
		Assemble: func(env framework.Env, storage *volumes.Storage) ([]cycle.Profile, error) {
			return Profiles(cfg, env, storage)
		},
		InitialBackoff: cfg.PodInitialBackoff,
		MaxBackoff:     cfg.PodMaxBackoff,
		For:            until,
		Random:         rand.New(rand.NewPCG(seed, seed)),
	}, report)
	if err != nil {
		return cli.BadInput(err)
	}
	return s.Run(ctx)
}

// loadConfig reads and completes a configuration file; no file stands for the
// default profile. Every fault of a file has its name before it.
func loadConfig(name string) (config.Config, error) {
	var file configv1.KubeSchedulerConfiguration
	var loading error
	if name != "" {
		data, err := os.ReadFile(name)
		if err != nil {
			return config.Config{}, err
		}
		file, loading = config.Load(data)
	}
	cfg, compiling := config.Compile(&file, config.BuiltIn())
	return cfg, cli.InFile(name, errors.Join(loading, compiling))
}
