package scheduleradapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/simulate"
)

func (p *program) checkConfigCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "check-config FILE",
		Short: "Print a configuration with all defaults, or its faults",
		Long: `Print the KubeSchedulerConfiguration that a file comes to, with all plugins and defaults,
or each fault for which run would end with exit code 2. FILE, or standard input for -, is a
KubeSchedulerConfiguration or a legacy Policy. Private keys are left out.`,
		Args: cobra.ExactArgs(1),
	}
	features := c.Flags().String("feature-gates", "", "as for run")
	c.RunE = func(c *cobra.Command, args []string) error {
		var extenders []configv1.Extender
		podGroups, withoutEffect, malformed := checkFeatureGates(*features)
		cfg, faulty := loadConfig(c, args[0], p.known(podGroups), func(file *config.File) { extenders = file.Extenders })
		if err := errors.Join(faulty, malformed); err != nil {
			return cli.BadInput(err)
		}
		if err := p.assemble(c.Context(), &cfg, slog.New(slog.DiscardHandler)); err != nil {
			return err
		}
		for _, warning := range slices.Concat(cfg.Warnings, withoutEffect, unwritten(&cfg)) {
			fmt.Fprintf(c.ErrOrStderr(), "%s: warning: %s\n", c.Root().Name(), warning)
		}
		text, err := yaml.Marshal(cfg.Versioned(extenders))
		if err == nil {
			_, err = c.OutOrStdout().Write(text)
		}
		return err
	}
	return c
}

// assemble makes the profiles of a configuration without a cluster. The error is the
// caller's fault.
func (p *program) assemble(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	_, err := p.newSimulation(ctx, &simulate.Objects{}, cfg, simulate.Config{}, nil, log)
	return err
}

// unwritten warns about what a KubeSchedulerConfiguration has no field for.
func unwritten(cfg *config.Config) (warnings []string) {
	if slices.ContainsFunc(cfg.Profiles, func(p config.Profile) bool { return p.EveryReason }) {
		warnings = append(warnings, "alwaysCheckAllPredicates is left out: only a Policy has it")
	}
	return warnings
}

// writeConfig writes the complete configuration, with private keys.
func (p *program) writeConfig(ctx context.Context, name string, cfg *config.Config, extenders []configv1.Extender, log *slog.Logger) error {
	if err := p.assemble(ctx, cfg, log); err != nil {
		return err
	}
	versioned := cfg.Versioned(extenders)
	versioned.Extenders = extenders
	text, err := yaml.Marshal(versioned)
	if err == nil {
		err = os.WriteFile(name, text, 0o600)
	}
	if err != nil {
		return cli.BadInput(fmt.Errorf("--write-config-to: %w", err))
	}
	for _, warning := range unwritten(cfg) {
		log.Warn("configuration", "warning", warning)
	}
	log.Info("configuration written", "file", name)
	return nil
}
