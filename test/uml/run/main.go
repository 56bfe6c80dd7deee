// Command run runs a command in a user-mode kernel with cgroup v2, prints its output and ends
// with its exit status.
//
//	go run ./test/uml/run -- evictd doctor
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/evictd/evictd/test/uml"
)

const (
	exitFailed   = 1
	exitBadInput = 2
)

func main() {
	uml.Main()
	memory := flag.Int("memory", 1024, "MiB of memory")
	limit := flag.Duration("limit", 30*time.Minute, "how long the kernel may run")
	processors := flag.Int("processors", 1, "how many processors it has")
	systemd := flag.Bool("systemd", false, "have systemd as init process")
	debian := flag.Bool("debian", false, "take the kernel of Debian's package, also if make uml has built one")
	flag.Parse()
	if flag.NArg() == 0 || *memory <= 0 || *processors <= 0 || *limit <= 0 {
		fmt.Fprintln(os.Stderr, "run: expected a positive -memory, -processors and -limit, and a command after the flags")
		os.Exit(exitBadInput)
	}
	status, err := run(*debian, uml.Machine{Memory: *memory, Processors: *processors, Limit: *limit}, *systemd, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		if _, is := errors.AsType[uml.Unavailable](err); is {
			os.Exit(exitBadInput)
		}
		os.Exit(exitFailed)
	}
	os.Exit(status)
}

func run(debian bool, m uml.Machine, systemd bool, args []string) (status int, err error) {
	find := uml.Find
	if debian {
		find = uml.Debian
	}
	if m.Kernel, err = find(); err != nil {
		return 0, err
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return 0, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return m.Run(ctx, uml.Command{Args: append([]string{program}, args[1:]...), Dir: dir, Output: os.Stdout, Systemd: systemd})
}
