// Workload is the process of a pod of tests. It carries out orders: first those
// that are its arguments, one each, then those that come in over the abstract
// socket that the variable ORDERS names, one a connection, answered by "ok" or by
// the fault. It ends on SIGTERM, unless ordered otherwise, and does nothing by
// itself.
//
//	hold BYTES             touch or give back memory until so much is held
//	leak RATE BYTES        hold more and more in the background, RATE bytes a second (0: as fast as it goes), up to BYTES
//	write FILE BYTES RATE  append to a file, RATE bytes a second in the background, or at once where that is 0
//	unlinked FILE BYTES    write a file, and delete it without closing it
//	files DIR N            make N empty files
//	copy FROM TO           copy a file in place of another, again every second in the background
//	print BYTES            write to the log
//	ignore-term            live on after SIGTERM
//	on SIGNAL FILE DELAY   on TERM or QUIT write the time in nanoseconds to a file, and end DELAY later
//	exit CODE              end
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// orders lists what can be ordered, and how many arguments each takes.
var orders = map[string]struct {
	arguments int
	carryOut  func(*workload, []string) error
}{
	"hold":        {1, (*workload).hold},
	"leak":        {2, (*workload).leak},
	"write":       {3, (*workload).write},
	"unlinked":    {2, (*workload).unlinked},
	"files":       {2, (*workload).files},
	"copy":        {2, (*workload).copy},
	"print":       {1, (*workload).print},
	"ignore-term": {0, (*workload).ignoreTerm},
	"on":          {3, (*workload).on},
	"exit":        {1, (*workload).exit},
}

// most is the most memory that can be held.
const most = 8 << 30

// workload is the state that orders leave behind.
type workload struct {
	mutex  sync.Mutex // of memory and held
	memory []byte     // a mapping of its own, out of the collector's reach
	held   int64      // bytes, from the start of memory
	open   []*os.File
	term   chan os.Signal
}

func main() {
	w := &workload{term: make(chan os.Signal, 1)}
	signal.Notify(w.term, syscall.SIGTERM)
	for _, order := range os.Args[1:] {
		if err := w.obey(order); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", order, err)
			os.Exit(1)
		}
	}
	if address := os.Getenv("ORDERS"); address != "" {
		if err := w.listen(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	<-w.term
}

func (w *workload) listen(address string) error {
	listener, err := net.Listen("unix", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			w.serve(client)
		}
	}()
	return nil
}

func (w *workload) serve(client net.Conn) {
	defer client.Close()
	line, err := bufio.NewReader(client).ReadString('\n')
	if err == nil {
		err = w.obey(strings.TrimSpace(line))
	}
	answer := "ok"
	if err != nil {
		answer = strings.ReplaceAll(err.Error(), "\n", " ")
	}
	fmt.Fprintln(client, answer)
}

func (w *workload) obey(line string) error {
	words := strings.Fields(line)
	if len(words) == 0 {
		return fmt.Errorf("no order")
	}
	order, known := orders[words[0]]
	if !known || order.arguments != len(words)-1 {
		return fmt.Errorf("no order %q of %d arguments", words[0], len(words)-1)
	}
	return order.carryOut(w, words[1:])
}

func (w *workload) hold(args []string) error {
	n, err := numbers(args)
	if err != nil {
		return err
	}
	return w.holdBytes(n[0])
}

func (w *workload) holdBytes(target int64) error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.memory == nil {
		var err error
		w.memory, err = syscall.Mmap(-1, 0, most, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
		if err != nil {
			return fmt.Errorf("map memory: %w", err)
		}
	}
	target = min(target, most)
	if target < w.held {
		err := syscall.Madvise(w.memory[target:w.held], syscall.MADV_DONTNEED)
		w.held = target
		return err
	}
	for ; w.held < target; w.held += int64(os.Getpagesize()) {
		w.memory[w.held] = 1
	}
	return nil
}

func (w *workload) leak(args []string) error {
	n, err := numbers(args)
	if err != nil {
		return err
	}
	w.mutex.Lock()
	before := w.held
	w.mutex.Unlock()
	go paced(n[0], n[1]-before, func(done int64) error { return w.holdBytes(before + done) })
	return nil
}

// paced takes steps until the amount is reached, rate a second or, where that is 0, at
// once, or until a step fails. done is the amount that a step must reach.
func paced(rate, amount int64, step func(done int64) error) error {
	if rate == 0 {
		return step(amount)
	}
	begun := time.Now()
	for tick := time.Tick(10 * time.Millisecond); ; <-tick {
		done := min(amount, int64(time.Since(begun).Seconds()*float64(rate)))
		if err := step(done); err != nil || done == amount {
			return err
		}
	}
}

func (w *workload) write(args []string) error {
	n, err := numbers(args[1:])
	if err != nil {
		return err
	}
	amount, rate := n[0], n[1]
	file, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if rate == 0 {
		defer file.Close()
		return pour(file, amount)
	}
	go func() {
		defer file.Close()
		var written int64
		err := paced(rate, amount, func(done int64) error {
			err := pour(file, done-written)
			written = done
			return err
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return nil
}

func (w *workload) unlinked(args []string) error {
	n, err := numbers(args[1:])
	if err != nil {
		return err
	}
	file, err := os.Create(args[0])
	if err != nil {
		return err
	}
	w.open = append(w.open, file)
	if err := os.Remove(args[0]); err != nil {
		return err
	}
	return pour(file, n[0])
}

// pour appends so many bytes and waits until they are on the disk.
func pour(file *os.File, amount int64) error {
	block := make([]byte, 64<<10)
	for amount > 0 {
		n, err := file.Write(block[:min(amount, int64(len(block)))])
		if err != nil {
			return err
		}
		amount -= int64(n)
	}
	return file.Sync()
}

func (w *workload) files(args []string) error {
	n, err := numbers(args[1:])
	if err != nil {
		return err
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	for i := range n[0] {
		if err := os.WriteFile(filepath.Join(args[0], strconv.FormatInt(i, 10)), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (w *workload) copy(args []string) error {
	go func() {
		for tick := time.Tick(time.Second); ; <-tick {
			if err := replace(args[1], args[0]); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
	return nil
}

// replace puts what a file has in the place of another.
func replace(to, from string) error {
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to+".new", text, 0o600)
	}
	if err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}

func (w *workload) print(args []string) error {
	n, err := numbers(args)
	if err != nil {
		return err
	}
	line := strings.Repeat("x", 1023) + "\n"
	for amount := n[0]; amount > 0; amount -= int64(len(line)) {
		if _, err := os.Stdout.WriteString(line[max(0, int64(len(line))-amount):]); err != nil {
			return err
		}
	}
	return nil
}

func (w *workload) ignoreTerm([]string) error {
	signal.Ignore(syscall.SIGTERM)
	return nil
}

// awaited are the signals that can be waited for.
var awaited = map[string]os.Signal{"TERM": syscall.SIGTERM, "QUIT": syscall.SIGQUIT}

func (w *workload) on(args []string) error {
	received, known := awaited[args[0]]
	if !known {
		return fmt.Errorf("no signal %q", args[0])
	}
	delay, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	came := make(chan os.Signal, 1)
	if received == syscall.SIGTERM {
		signal.Stop(w.term)
	}
	signal.Notify(came, received)
	go func() {
		<-came
		if err := os.WriteFile(args[1], []byte(strconv.FormatInt(time.Now().UnixNano(), 10)), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		<-time.After(delay)
		os.Exit(0)
	}()
	return nil
}

func (w *workload) exit(args []string) error {
	n, err := numbers(args)
	if err != nil {
		return err
	}
	os.Exit(int(n[0]))
	return nil
}

func numbers(texts []string) ([]int64, error) {
	var found []int64
	for _, text := range texts {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		found = append(found, n)
	}
	return found, nil
}
