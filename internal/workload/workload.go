// Package workload is the program of pods in tests and demonstrations: a process that
// carries out orders, and does nothing by itself. An order is a line; the answer is a
// line too, "ok" or the error. Sizes are numbers of bytes, or end in Ki, Mi or Gi.
//
//	hold SIZE               touch or give back memory until it holds so much
//	grow SIZE               hold so much more
//	leak RATE SIZE          hold more and more in the background, RATE a second (0: without pause), up to SIZE
//	burst RATE TIME         hold more and more in the background, at most RATE a second, and give that back after a time
//	stamps FILE             note in a file when it touches each StampEvery of memory, see ReadStamps
//	write FILE SIZE [RATE]  append to a file, in the background where RATE is not 0
//	unlinked FILE SIZE      write a file and delete it without closing it
//	files DIR N             make N empty files
//	copy FROM TO            copy a file in place of another, again every second in the background
//	read FILE [N]           read a file N times
//	work FILE COUNT         read a MiB of a file, the next one each time, in the background, twenty times a second at most, and keep in another how often
//	print SIZE              write to standard output
//	fork N                  start N children that sleep, or as many as the kernel allows
//	shell LINE              run a line of sh in the background
//	rename "NAME"           set the name of the process; a Go string
//	enter DIR               make a directory its root, as a runtime does for a container
//	bound SIZE              limit its address space to SIZE more than now
//	on SIGNAL ORDER         carry out an order at each TERM, QUIT or USR1
//	ignore-term             ignore SIGTERM
//	note FILE               write the time to a file, nanoseconds since 1970
//	exit CODE [DELAY]       end, after a time
package workload

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Variable is set in the environment of a test binary that runs as a workload, see
// Main.
const Variable = "EVICTD_WORKLOAD"

// Main makes this process a workload where the environment says so: it carries out the
// orders of its standard input and ends with that. Otherwise it returns.
func Main() {
	if os.Getenv(Variable) == "" {
		return
	}
	new(workload).obeyAll(os.Stdin, os.Stdout)
	os.Exit(0)
}

// Listen carries out first orders, and then those that arrive at an abstract socket,
// one a connection. Where address is "" there are none. It returns only an error.
func Listen(address string, first []string) error {
	w := &workload{}
	if os.Getpid() == 1 || address == "" {
		// The first process of a PID namespace gets only signals that it handles, and Go ends a
		// program that waits for nothing.
		w.handle(syscall.SIGTERM)
	}
	if err := w.do(first); err != nil {
		return err
	}
	if address == "" {
		select {}
	}
	listener, err := net.Listen("unix", address)
	if err != nil {
		return err
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		w.obeyAll(client, client)
		client.Close()
	}
}

// Do carries out orders.
func Do(orders ...string) error { return new(workload).do(orders) }

func (w *workload) do(orders []string) error {
	for _, order := range orders {
		if err := w.obey(order); err != nil {
			return fmt.Errorf("%s: %w", order, err)
		}
	}
	return nil
}

// workload is what orders leave behind.
type workload struct {
	mu     sync.Mutex // of memory
	memory []byte     // a mapping of its own, out of the reach of the garbage collector
	held   int64      // bytes, from the start of memory
	stamps []byte     // shared with the reader of the file
	open   []*os.File // deleted

	signals sync.Mutex
	on      map[os.Signal][]string // orders
}

func (w *workload) obeyAll(from io.Reader, to io.Writer) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		answer := "ok"
		if err := w.obey(lines.Text()); err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Fprintln(to, answer)
	}
}

// order is what carries out an order, and how many arguments it takes at least.
type order struct {
	arguments int
	carryOut  func([]string) error
}

func (w *workload) obey(line string) error {
	words := strings.Fields(line)
	if len(words) == 0 {
		return errors.New("no order")
	}
	o, known := map[string]order{
		"hold": {1, w.hold}, "grow": {1, w.grow}, "leak": {2, w.leak}, "burst": {2, w.burst}, "stamps": {1, w.stampInto}, "bound": {1, w.bound},
		"write": {2, w.write}, "unlinked": {2, w.unlinked}, "files": {2, w.files}, "copy": {2, w.copy}, "read": {1, w.read}, "work": {2, w.work}, "print": {1, w.print},
		"fork": {1, w.fork}, "shell": {1, w.shell}, "rename": {1, w.rename}, "enter": {1, w.enter},
		"on": {2, w.onSignal}, "ignore-term": {0, w.ignoreTerm}, "note": {1, w.note}, "exit": {1, w.exit},
	}[words[0]]
	if !known || len(words)-1 < o.arguments {
		return fmt.Errorf("no order %q of %d arguments", words[0], len(words)-1)
	}
	return o.carryOut(words[1:])
}

// size is an argument, bytes.
func size(text string) (int64, error) {
	unit := int64(1)
	for i, suffix := range []string{"Ki", "Mi", "Gi"} {
		if number, has := strings.CutSuffix(text, suffix); has {
			text, unit = number, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n * unit, err
}

// sizes are arguments, bytes; those left out are 0.
func sizes(args []string, into ...*int64) (err error) {
	for i, text := range args[:min(len(args), len(into))] {
		var fault error
		*into[i], fault = size(text)
		err = errors.Join(err, fault)
	}
	return err
}
