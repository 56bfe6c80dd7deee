// Command evictd protects a Linux node from running out of memory, disk,
// inodes and process ids by evicting the right pod early.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/manifest"
)

// version is stamped by the linker.
var version = "unknown"

// Exit codes: bad flags, files or configuration, and everything else that
// ended the program against its will.
const (
	exitFault    = 1
	exitBadInput = 2
)

// badInput marks an error as the caller's: exit code 2.
type badInput struct{ error }

func (e badInput) Unwrap() error { return e.error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	root := &cobra.Command{
		Use:                "evictd",
		Short:              "Protects a node from running out of memory, disk, inodes and process ids",
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badInput{err} })
	root.AddCommand(runCommand(), statusCommand(), simulateCommand(), checkConfigCommand(), oomScoreCommand(), doctorCommand(), versionCommand())
	for _, c := range root.Commands() {
		c.Args = refuse(c.Args)
	}
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	for _, fault := range manifest.Faults(err) {
		fmt.Fprintf(errs, "evictd: %v\n", fault)
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

func versionCommand() *cobra.Command {
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

// formatFlag adds -o with the formats given, the first being the default.
func formatFlag(c *cobra.Command, formats ...string) *format {
	f := &format{formats, formats[0]}
	c.Flags().VarP(f, "output", "o", "output format")
	return f
}

// format is the value of -o.
type format struct {
	allowed []string
	chosen  string
}

func (f *format) String() string { return f.chosen }

func (f *format) Type() string { return strings.Join(f.allowed, "|") }

func (f *format) Set(s string) error {
	if slices.Contains(f.allowed, s) {
		f.chosen = s
		return nil
	}
	return fmt.Errorf("expected %s", f.Type())
}

// readInput reads a file, or standard input where the name is "-".
func readInput(c *cobra.Command, name string) ([]byte, error) {
	if name == "-" {
		data, err := io.ReadAll(c.InOrStdin())
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return data, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, badInput{err}
	}
	return data, nil
}

// inFile puts the file's name before each fault in it and makes them the
// caller's.
func inFile(name string, err error) error {
	var named []error
	for _, fault := range manifest.Faults(err) {
		named = append(named, fmt.Errorf("%s: %w", name, fault))
	}
	return badInput{errors.Join(named...)}
}
