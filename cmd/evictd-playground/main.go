// Command evictd-playground shows evictd at work: a small cluster on this host,
// with real processes in real cgroups, in which one pod leaks memory; or, where no
// cgroups can be made, a single virtual node. It shows what happens, checks it, and
// leaves nothing behind. It is no part of an installation.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/cmd/evictd-playground/demo"
)

// Exit codes beside 0; that of an interruption is the shell's for SIGINT.
const (
	exitFault       = 1
	exitBadInput    = 2
	exitInterrupted = 130
)

var errBadFlag = errors.New("bad command line")

// options are the flags.
type options struct {
	programs string // directory; "" is this program's
	procfs   bool
	keep     bool
	storm    bool
}

func main() {
	var o options
	root := &cobra.Command{
		Use:           "evictd-playground",
		Short:         "Watch evictd and evictd-scheduler at work in a small cluster on this host",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Flags().StringVar(&o.programs, "programs", "", "directory of the programs to watch (default that of this one)")
	root.Flags().BoolVar(&o.procfs, "procfs", false, "use no cgroups: one virtual node, its pods measured through procfs")
	root.Flags().BoolVar(&o.keep, "keep", false, "leave the cluster running for kubectl, until ^C")
	root.Flags().BoolVar(&o.storm, "storm", false, "show an eviction storm, without NodePressure and with it")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errBadFlag, err) })
	root.RunE = func(*cobra.Command, []string) error {
		if o.storm && (o.procfs || o.keep) {
			return fmt.Errorf("%w: --storm: goes with neither --procfs nor --keep", errBadFlag)
		}
		return watch(o)
	}
	root.AddCommand(podCommand(), nodeCommand(), leakCommand())
	err := root.Execute()
	if err != nil {
		fmt.Fprintf(os.Stderr, "evictd-playground: %v\n", err)
	}
	os.Exit(exitCode(err))
}

func exitCode(err error) int {
	for _, e := range []struct {
		is   error
		code int
	}{{nil, 0}, {console.ErrInterrupted, exitInterrupted}, {errBadFlag, exitBadInput}} {
		if errors.Is(err, e.is) {
			return e.code
		}
	}
	return exitFault
}

// untilInterrupted ends when the user or the machine wants it to.
func untilInterrupted() (context.Context, context.CancelFunc) {
	// A reader that ends is no reason to leave cgroups behind.
	signal.Ignore(syscall.SIGPIPE)
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// nodeCommand makes a node and leaves it to others to protect it.
func nodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "node DIR",
		Short: "Make a node to try evictd on, described in DIR, until ^C",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := untilInterrupted()
			defer stop()
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find own program: %w", err)
			}
			return demo.Node(ctx, console.NewPrinter(os.Stdout), args[0], self)
		},
	}
}

func leakCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "leak DIR POD",
		Short: "Have a pod of the node in DIR take more and more memory",
		Args:  cobra.ExactArgs(2),
		RunE:  func(_ *cobra.Command, args []string) error { return demo.Leak(args[0], args[1]) },
	}
}

// watch plays a demo script on the terminal.
func watch(o options) error {
	ctx, stop := untilInterrupted()
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	if o.programs == "" {
		o.programs = filepath.Dir(self)
	}
	in := func(name string) string { return filepath.Join(o.programs, name) }
	programs := demo.Programs{Evictd: in("evictd"), Scheduler: in("evictd-scheduler"), APIServer: in("evictd-apiserver"), Pod: self}
	for _, path := range []string{programs.Evictd, in("evictd-agent"), programs.APIServer, programs.Scheduler} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("find the programs (make build makes them): %w", err)
		}
	}
	t := console.NewPrinter(os.Stdout)
	if !o.procfs {
		c, err := demo.New(t, programs)
		switch {
		case err == nil && o.storm:
			return c.Storm(ctx)
		case err == nil:
			return c.Play(ctx, o.keep)
		case o.storm:
			return fmt.Errorf("make cgroups, which a storm needs: %w", err)
		}
		t.Print(time.Now(), console.Yellow, "playground", "no cgroups can be made here (%v), so this is the demo of one virtual node", err)
	}
	return demo.PlayVirtual(ctx, t, programs)
}
