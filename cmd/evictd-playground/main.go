// Command evictd-playground shows evictd at work: it sets up a small node on this
// host, bounded and with four real pods, lets one of them leak memory, tells what
// happens, checks it, and leaves nothing behind. It is no part of an installation.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes beside 0; that of an interruption is the shell's for SIGINT.
const (
	exitFault       = 1
	exitBadInput    = 2
	exitInterrupted = 130
)

var (
	errInterrupted = errors.New("interrupted")
	errNotHeld     = errors.New("not everything held")
	errBadFlag     = errors.New("bad command line")
)

// options are the flags.
type options struct {
	evictd string // path of the daemon; "" is beside this program
	procfs bool
}

func main() {
	// Children die with the thread that started them: all are started on this
	// one, which lasts as long as the program.
	runtime.LockOSThread()
	var o options
	root := &cobra.Command{
		Use:           "evictd-playground",
		Short:         "Watch evictd evict the right pod from a small node on this host",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Flags().StringVar(&o.evictd, "evictd", "", "the daemon to watch (default evictd beside this program)")
	root.Flags().BoolVar(&o.procfs, "procfs", false, "use no cgroups: a virtual node, its pods measured through procfs")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errBadFlag, err) })
	root.RunE = func(*cobra.Command, []string) error { return watch(o) }
	root.AddCommand(podCommand())
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
	}{{nil, 0}, {errInterrupted, exitInterrupted}, {errBadFlag, exitBadInput}} {
		if errors.Is(err, e.is) {
			return e.code
		}
	}
	return exitFault
}

// watch plays the story on the terminal.
func watch(o options) error {
	// Who reads no further is no reason to leave cgroups behind.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	if o.evictd == "" {
		o.evictd = filepath.Join(filepath.Dir(self), "evictd")
	}
	if _, err := os.Stat(o.evictd); err != nil {
		return fmt.Errorf("find the daemon (make build makes it): %w", err)
	}
	s := newStory(newTeller(os.Stdout), self, o)
	return s.run(ctx)
}
