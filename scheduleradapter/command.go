package scheduleradapter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/drain"
	"github.com/evictd/evictd/scheduleradapter/explain"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/outoftree"
	"github.com/evictd/evictd/scheduleradapter/profile"
	"github.com/evictd/evictd/scheduleradapter/whatif"
)

// program has the out-of-tree plugins of a command line.
type program struct {
	plugins map[string]outoftree.Factory
	faults  []error
	version string
}

// Option of NewCommand.
type Option func(*program)

// WithPlugin adds an out-of-tree plugin, written against
// k8s.io/kube-scheduler/framework. A configuration enables it by name.
func WithPlugin(name string, factory outoftree.Factory) Option {
	return func(p *program) {
		isBuiltIn := slices.ContainsFunc(profile.BuiltIn(), func(b config.Plugin) bool { return b.Name == name })
		if _, twice := p.plugins[name]; twice || isBuiltIn {
			p.faults = append(p.faults, fmt.Errorf("a plugin named %s already exists", name))
		}
		p.plugins[name] = factory
	}
}

// known lists the plugins that a configuration may name. With pod groups,
// GangScheduling is a default plugin.
func (p *program) known(podGroups bool) []config.Plugin {
	known := profile.BuiltIn()
	gang := slices.IndexFunc(known, func(p config.Plugin) bool { return p.Name == framework.GangScheduling })
	known[gang].Default = podGroups
	for _, name := range slices.Sorted(maps.Keys(p.plugins)) {
		known = append(known, config.Plugin{Name: name})
	}
	return known
}

// NewCommand makes the command line of evictd-scheduler, for Execute.
func NewCommand(version string, options ...Option) *cobra.Command {
	p := &program{plugins: map[string]outoftree.Factory{}, version: version}
	for _, option := range options {
		option(p)
	}
	root := cli.New("evictd-scheduler", "Kubernetes scheduler that avoids node pressure", version, p.runCommand(), p.simulateCommand(), p.checkConfigCommand(), explain.NewCommand(defaultStatusAddress), whatif.NewCommand(defaultStatusAddress), drain.NewCommand())
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return errors.Join(p.faults...) }
	return root
}

// Execute runs a command line, or the flags of kube-scheduler's manifest; SIGINT and SIGTERM cancel its context. It writes errors
// to the command's standard error and returns the exit code: 0, 1, or 2 for bad input.
func Execute(ctx context.Context, root *cobra.Command, args []string) int {
	return cli.Execute(ctx, root, asKubeScheduler(args))
}
