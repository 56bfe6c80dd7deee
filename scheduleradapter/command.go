package scheduleradapter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/foreign"
)

// Exit codes: bad flags, files or configuration, and everything else that ended
// the program against its will.
const (
	exitFault    = 1
	exitBadInput = 2
)

// badInput marks an error as the caller's: exit code 2.
type badInput struct{ error }

func (e badInput) Unwrap() error { return e.error }

// program is what a command line is made of.
type program struct {
	plugins map[string]foreign.Factory
	faults  []error
}

// Option changes what NewCommand makes.
type Option func(*program)

// WithPlugin compiles a plugin in that is written against
// k8s.io/kube-scheduler/framework. A configuration may name it like any other.
func WithPlugin(name string, factory foreign.Factory) Option {
	return func(p *program) {
		isBuiltIn := slices.ContainsFunc(config.BuiltIn(), func(b config.Plugin) bool { return b.Name == name })
		if p.plugins[name] != nil || isBuiltIn {
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
	p := &program{plugins: map[string]foreign.Factory{}}
	for _, option := range options {
		option(p)
	}
	root := &cobra.Command{
		Use:                "evictd-scheduler",
		Short:              "Places pods by what nodes have room for, and says why",
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badInput{err} })
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return errors.Join(p.faults...) }
	root.AddCommand(p.simulateCommand(), versionCommand(version))
	for _, c := range root.Commands() {
		c.Args = refuse(c.Args)
	}
	return root
}

// Execute runs a command line, writes every fault to the command's standard error
// and returns the exit code: 0, 1 or, for bad input, 2.
func Execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	for _, fault := range manifest.Faults(err) {
		fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", root.Name(), fault)
	}
	var bad badInput
	if errors.As(err, &bad) || !known(root, args) {
		return exitBadInput
	}
	return exitFault
}

// known says whether the command line names a command there is.
func known(root *cobra.Command, args []string) bool {
	c, _, err := root.Find(args)
	return err == nil && c != root
}

// refuse makes faulty arguments the caller's fault.
func refuse(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return badInput{err}
		}
		return nil
	}
}

func versionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), version)
			return err
		},
	}
}

// choice is the value of a flag that takes one of several words.
type choice struct {
	allowed []string
	chosen  string
}

func (f *choice) String() string { return f.chosen }

func (f *choice) Type() string { return strings.Join(f.allowed, "|") }

func (f *choice) Set(s string) error {
	if !slices.Contains(f.allowed, s) {
		return fmt.Errorf("expected %s", f.Type())
	}
	f.chosen = s
	return nil
}
