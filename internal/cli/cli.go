// Package cli is the common part of the command lines of all programs: exit codes, how
// errors are printed, and input and output as flags and arguments name them.
package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evictd/evictd/internal/manifest"
)

// Exit codes beside 0: bad flags, files or configuration, and everything else
// that ended the program against its will.
const (
	ExitFault    = 1
	ExitBadInput = 2
)

type badInput struct{ error }

func (e badInput) Unwrap() error { return e.error }

// BadInput marks an error as the caller's: exit code 2.
func BadInput(err error) error { return badInput{err} }

// New is the command line of a program with the given commands, and one that
// prints the version.
func New(name, short, version string, commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:                name,
		Short:              short,
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if _, unknown := errors.AsType[*pflag.NotExistError](err); unknown {
			err = fmt.Errorf("%w; %s --help lists the flags", err, c.CommandPath())
		}
		return BadInput(err)
	})
	root.AddCommand(commands...)
	root.AddCommand(versionCommand(version))
	root.AddCommand(generators()...)
	for _, c := range root.Commands() {
		c.Args = refuse(c.Args)
	}
	return root
}

// refuse makes faulty arguments the caller's fault.
func refuse(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return BadInput(fmt.Errorf("%w; expected %s", err, c.UseLine()))
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

// Execute runs a command line, whose context SIGINT and SIGTERM end, writes every
// fault to the command's standard error and returns the exit code.
func Execute(ctx context.Context, root *cobra.Command, args []string) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var bad badInput
	theirs := errors.As(err, &bad)
	if !theirs && !known(root, args) {
		theirs, err = true, fmt.Errorf("%w; %s --help lists the commands", err, root.Name())
	}
	for _, fault := range manifest.Faults(err) {
		fmt.Fprintf(root.ErrOrStderr(), "%s: %s\n", root.Name(), strings.Map(shown, fault.Error()))
	}
	if theirs {
		return ExitBadInput
	}
	return ExitFault
}

// shown leaves a terminal nothing to act on in what others may have written.
func shown(r rune) rune {
	if unicode.IsPrint(r) || r == '\n' || r == '\t' {
		return r
	}
	return unicode.ReplacementChar
}

// known says whether the command line names a command there is; a program without
// commands is one itself.
func known(root *cobra.Command, args []string) bool {
	c, _, err := root.Find(args)
	return err == nil && (c != root || root.Runnable())
}

// Choice is the value of a flag that takes one of several words.
type Choice struct {
	allowed []string
	chosen  string
}

// OutputFlag adds -o with the formats given, the first being the default.
func OutputFlag(c *cobra.Command, formats ...string) *Choice {
	f := &Choice{formats, formats[0]}
	c.Flags().VarP(f, "output", "o", "output format")
	return f
}

// String is the word chosen.
func (f *Choice) String() string { return f.chosen }

// Type lists the words allowed, for the usage text.
func (f *Choice) Type() string { return strings.Join(f.allowed, "|") }

// Set chooses a word.
func (f *Choice) Set(s string) error {
	if !slices.Contains(f.allowed, s) {
		return fmt.Errorf("expected %s", f.Type())
	}
	f.chosen = s
	return nil
}

// ReadInput reads a file, or standard input if the name is "-", and decompresses what
// gzip has compressed.
func ReadInput(c *cobra.Command, name string) (data []byte, err error) {
	if name == "-" {
		if data, err = io.ReadAll(c.InOrStdin()); err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
	} else if data, err = os.ReadFile(name); err != nil {
		return nil, BadInput(err)
	}
	if !bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		return data, nil
	}
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		data, err = io.ReadAll(compressed)
	}
	if err != nil {
		return nil, InFile(name, fmt.Errorf("decompress: %w", err))
	}
	return data, nil
}

// Rename changes the text of each fault of an error, and leaves the exit code as it is.
func Rename(err error, text func(fault string) string) error {
	var renamed []error
	for _, fault := range manifest.Faults(err) {
		renamed = append(renamed, errors.New(text(fault.Error())))
	}
	if _, theirs := errors.AsType[badInput](err); theirs {
		return BadInput(errors.Join(renamed...))
	}
	return errors.Join(renamed...)
}

// InFile puts the file's name before each fault in it, if there are any, and makes
// them the caller's.
func InFile(name string, err error) error {
	if name == "-" {
		name = "standard input"
	}
	var named []error
	for _, fault := range manifest.Faults(err) {
		named = append(named, fmt.Errorf("%s: %w", name, fault))
	}
	if len(named) == 0 {
		return nil
	}
	return BadInput(errors.Join(named...))
}
