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
	"github.com/evictd/evictd/scheduleradapter/outoftree"
)

// program is what a command line is made of.
type program struct {
	plugins map[string]outoftree.Factory
	faults  []error
}

// Option changes what NewCommand makes.
type Option func(*program)

// WithPlugin compiles a plugin in that is written against
// k8s.io/kube-scheduler/framework. A configuration may name it like any other.
func WithPlugin(name string, factory outoftree.Factory) Option {
	return func(p *program) {
		isBuiltIn := slices.ContainsFunc(config.BuiltIn(), func(b config.Plugin) bool { return b.Name == name })
		if _, twice := p.plugins[name]; twice || isBuiltIn {
			p.faults = append(p.faults, fmt.Errorf("a plugin named %s already exists", name))
		}
		p.plugins[name] = factory
	}
}

// known are the plugins that a configuration may name.
func (p *program) known() []config.Plugin {
	known := config.BuiltIn()
	for _, name := range slices.Sorted(maps.Keys(p.plugins)) {
		known = append(known, config.Plugin{Name: name})
	}
	return known
}

// NewCommand is the command line of evictd-scheduler, to be given to Execute.
func NewCommand(version string, options ...Option) *cobra.Command {
	p := &program{plugins: map[string]outoftree.Factory{}}
	for _, option := range options {
		option(p)
	}
	root := cli.New("evictd-scheduler", "Places pods by what nodes have room for, and says why", version, p.runCommand(), p.simulateCommand(), explainCommand(), drainCommand())
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return errors.Join(p.faults...) }
	return root
}

// Execute runs a command line until it ends, or SIGINT or SIGTERM ends its
// context. It writes every fault to the command's standard error and returns the
// exit code: 0, 1 or, for bad input, 2.
func Execute(ctx context.Context, root *cobra.Command, args []string) int {
	return cli.Execute(ctx, root, args)
}
