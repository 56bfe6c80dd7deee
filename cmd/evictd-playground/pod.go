package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
)

// podProcess is what the process of a pod does.
type podProcess struct {
	hold, leak, most resource.QuantityValue
	farewell         time.Duration
}

// podCommand is what the processes of pods run.
func podCommand() *cobra.Command {
	var l podProcess
	c := &cobra.Command{Use: "pod", Hidden: true, Args: cobra.NoArgs}
	c.Flags().Var(&l.hold, "hold", "memory to take at once")
	c.Flags().Var(&l.leak, "leak", "memory to take from SIGUSR1 on, a second")
	c.Flags().Var(&l.most, "cap", "where the leak ends")
	c.Flags().DurationVar(&l.farewell, "farewell", 0, "from SIGTERM to its end; 0 ends by the signal")
	c.RunE = func(*cobra.Command, []string) error { return l.run() }
	return c
}

// run begins at the first byte from its parent, by which time the process has
// been put into its cgroup, and answers with one once it holds what it shall.
// Then it ends with its input.
func (l *podProcess) run() error {
	if err := bound(l.hold.Value() + l.most.Value()); err != nil {
		return err
	}
	leak, farewell := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(leak, syscall.SIGUSR1)
	if l.farewell > 0 {
		signal.Notify(farewell, syscall.SIGTERM)
	}
	if !next() {
		return nil
	}
	if err := take(l.hold.Value()); err != nil {
		return err
	}
	if _, err := os.Stdout.Write([]byte{'\n'}); err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		for next() {
		}
		close(over)
	}()
	const tick = 10 * time.Millisecond
	var ticks <-chan time.Time
	chunk := l.leak.Value() * int64(tick) / int64(time.Second)
	for taken := int64(0); ; {
		select {
		case <-over:
			return nil
		case <-farewell:
			time.Sleep(l.farewell)
			return nil
		case <-leak:
			ticker := time.NewTicker(tick)
			defer ticker.Stop()
			ticks, leak = ticker.C, nil
		case <-ticks:
			if chunk <= 0 || taken+chunk > l.most.Value() || take(chunk) != nil {
				ticks = nil
			}
			taken += chunk
		}
	}
}

// next waits for a byte from the parent; false says that there is none left.
func next() bool {
	_, err := io.ReadFull(os.Stdin, make([]byte, 1))
	return err == nil
}

// bound limits the address space to what is there, what will be taken, and what
// the Go runtime and the C library may still reserve: whatever happens, there is an
// end to what the pod can take.
func bound(more int64) error {
	const slack = 256 * console.MiB
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	pages, err := strconv.ParseUint(strings.Fields(string(statm))[0], 10, 40)
	if err != nil {
		return fmt.Errorf("read own size: %w", err)
	}
	if more < 0 {
		return errors.New("--hold and --cap: must not be negative")
	}
	size := pages*uint64(os.Getpagesize()) + uint64(more) + slack
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: size, Max: size}); err != nil {
		return fmt.Errorf("limit own memory: %w", err)
	}
	return nil
}

// take maps memory that is never given back, and touches every page of it.
func take(size int64) error {
	if size == 0 {
		return nil
	}
	memory, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("take %d bytes: %w", size, err)
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	return nil
}
