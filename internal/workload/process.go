package workload

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evictd/evictd/internal/process"
)

// handled are the signals that an order can wait for.
var handled = map[string]os.Signal{"TERM": syscall.SIGTERM, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2}

func (w *workload) onSignal(args []string) error {
	s, known := handled[args[0]]
	if !known {
		return fmt.Errorf("no signal %q", args[0])
	}
	w.handle(s, strings.Join(args[1:], " "))
	return nil
}

// handle adds orders to those that a signal has carried out. A signal without orders
// ends the process.
func (w *workload) handle(s os.Signal, orders ...string) {
	w.signals.Lock()
	defer w.signals.Unlock()
	first := w.on[s] == nil
	if w.on == nil {
		w.on = map[os.Signal][]string{}
	}
	w.on[s] = append(append([]string{}, w.on[s]...), orders...)
	if !first {
		return
	}
	came := make(chan os.Signal, 1)
	signal.Notify(came, s)
	go func() {
		for range came {
			w.signals.Lock()
			orders := w.on[s]
			w.signals.Unlock()
			if len(orders) == 0 {
				os.Exit(0)
			}
			for _, order := range orders {
				if err := w.obey(order); err != nil {
					fmt.Fprintf(os.Stderr, "%s: %v\n", order, err)
				}
			}
		}
	}()
}

func (w *workload) ignoreTerm([]string) error {
	signal.Ignore(syscall.SIGTERM)
	return nil
}

func (w *workload) note(args []string) error {
	return os.WriteFile(args[0], []byte(strconv.FormatInt(time.Now().UnixNano(), 10)), 0o644)
}

func (w *workload) exit(args []string) error {
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if len(args) > 1 {
		delay, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		<-time.After(delay)
	}
	os.Exit(code)
	return nil
}

func (w *workload) fork(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	for range n {
		switch err := process.Spawn(exec.Command("sleep", "infinity")); {
		case errors.Is(err, syscall.EAGAIN):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

func (w *workload) shell(args []string) error {
	return process.Spawn(exec.Command("sh", "-c", strings.Join(args, " ")))
}

func (w *workload) rename(args []string) error {
	name, err := strconv.Unquote(args[0])
	if err != nil {
		return err
	}
	return os.WriteFile("/proc/self/comm", []byte(name), 0)
}

func (w *workload) enter(args []string) error {
	return errors.Join(syscall.Chroot(args[0]), syscall.Chdir("/"))
}
