package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/internal/workload"
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

// run begins at the first byte from its parent, by which time the process is in its cgroup,
// and answers with one once it holds what it shall. Then it ends with its input.
func (l *podProcess) run() error {
	if l.hold.Value() < 0 || l.most.Value() < 0 {
		return errors.New("--hold and --cap: must not be negative")
	}
	leak := "grow 0"
	if l.leak.Value() > 0 {
		leak = fmt.Sprintf("leak %d %d", l.leak.Value(), l.hold.Value()+l.most.Value())
	}
	if l.farewell > 0 {
		if err := workload.Do(fmt.Sprint("on TERM exit 0 ", l.farewell)); err != nil {
			return err
		}
	}
	if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
		return nil // its parent has ended
	}
	err := workload.Do("on USR1 "+leak, fmt.Sprint("hold ", l.hold.Value()), fmt.Sprint("bound ", l.most.Value()))
	if err == nil {
		_, err = os.Stdout.Write([]byte{'\n'})
	}
	if err == nil {
		_, err = io.Copy(io.Discard, os.Stdin)
	}
	return err
}
