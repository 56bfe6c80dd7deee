package vm_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/wait"
)

// patience is how long a machine may take.
type patience struct {
	all    time.Duration // to its end
	silent time.Duration // between lines of its console
	answer time.Duration // to what its kernel prints at a non-maskable interrupt, and between lines of that
	apart  time.Duration // between two readings of its registers
}

// hardware is what machines differ in.
type hardware struct {
	kernel    string // file
	arguments string // of the kernel
	memory    int    // MiB; 0 is 1024
	drives    []string
}

// emulator is a QEMU that runs.
type emulator struct {
	*process.Process
	out        *os.File // what the machine writes to its second serial line
	console    string   // the file that has what it writes to the first
	complaints bytes.Buffer
	monitor    net.Conn // of QEMU's protocol QMP
	answers    *json.Decoder
}

// emulate starts a machine, whose kernel panics at a non-maskable interrupt and prints what its
// processors do. A kernel that panics ends the machine.
func emulate(t *testing.T, console string, h hardware) *emulator {
	t.Helper()
	e := &emulator{console: console}
	args := []string{"-n", "5", "qemu-system-x86_64",
		"-M", "q35", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max", "-m", strconv.Itoa(cmp.Or(h.memory, 1024)), "-smp", "2",
		"-display", "none", "-no-reboot", "-nic", "none",
		"-chardev", "socket,id=monitor,fd=3", "-mon", "chardev=monitor,mode=control",
		"-serial", "file:" + console, "-serial", "stdio", "-kernel", h.kernel,
		"-append", "console=ttyS0 quiet panic=-1 unknown_nmi_panic panic_print=0x41 psi=1 no_timer_check mitigations=off nokaslr " + h.arguments}
	for i, drive := range h.drives {
		args = append(args, "-drive", fmt.Sprintf("format=raw,if=none,id=drive%d,%s", i, drive), "-device", fmt.Sprintf("nvme,drive=drive%[1]d,serial=drive%[1]d", i))
	}
	c := exec.CommandContext(t.Context(), "nice", args...)
	c.Stderr = &e.complaints
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, its := os.NewFile(uintptr(ends[0]), "monitor"), os.NewFile(uintptr(ends[1]), "monitor")
	e.out, c.Stdout, c.ExtraFiles = read, write, []*os.File{its}
	e.Process, err = process.Start(c)
	write.Close()
	its.Close()
	if err == nil {
		e.monitor, err = net.FileConn(ours)
	}
	ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	e.answers = json.NewDecoder(e.monitor)
	t.Cleanup(func() {
		e.Kill()
		e.monitor.Close()
		e.out.Close()
	})
	return e
}

// command is a command of QEMU's monitor and what it answers, or why it does not.
func (e *emulator) command(line string) string {
	const limit = 10 * time.Second
	err := e.monitor.SetDeadline(time.Now().Add(limit))
	for _, request := range []any{
		map[string]any{"execute": "qmp_capabilities"},
		map[string]any{"execute": "human-monitor-command", "arguments": map[string]string{"command-line": line}, "id": line},
	} {
		err = errors.Join(err, json.NewEncoder(e.monitor).Encode(request))
	}
	for err == nil {
		var answer struct {
			ID     string
			Return any
			Error  any
		}
		// The other answers are to qmp_capabilities, and what QEMU reports by itself.
		if err = e.answers.Decode(&answer); err == nil && answer.ID == line {
			return fmt.Sprintf("%s: %v%v\n", line, answer.Return, cmp.Or(answer.Error, any("")))
		}
	}
	return fmt.Sprintf("%s: the monitor does not answer: %v\n", line, err)
}

// printed is what the console has after so many bytes.
func (e *emulator) printed(after int64) (text []byte) {
	file, err := os.Open(e.console)
	if err == nil {
		defer file.Close()
		text, _ = io.ReadAll(io.NewSectionReader(file, after, 1<<20))
	}
	return text
}

// size is that of the console in bytes.
func (e *emulator) size() int64 {
	info, err := os.Stat(e.console)
	if err != nil { // QEMU makes it
		return 0
	}
	return info.Size()
}

// silent says whether the console has not grown for so long.
func (e *emulator) silent(d time.Duration) func() bool {
	size, at := e.size(), time.Now()
	return func() bool {
		if now := e.size(); now != size {
			size, at = now, time.Now()
		}
		return time.Since(at) >= d
	}
}

// await returns once the condition holds, the machine has ended or the time is over.
func (e *emulator) await(d time.Duration, holds func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_ = wait.That(ctx, func() bool { return !e.Running() || holds() })
}

// stall is why a machine had to be ended.
type stall struct {
	reason   string
	answered bool   // its kernel answered a non-maskable interrupt
	record   string // its registers, where its kernel did not
}

// watch returns once the machine has ended, and ends it where the patience does. The stall is nil
// where the machine ended by itself.
func (e *emulator) watch(p patience) *stall {
	begun := time.Now()
	e.await(p.all, e.silent(p.silent))
	if !e.Running() {
		return nil
	}
	defer e.Kill()
	s := &stall{reason: fmt.Sprintf("it wrote nothing to its console for %v", p.silent)}
	if time.Since(begun) >= p.all {
		s.reason = fmt.Sprintf("it did not end within %v", p.all)
	}
	size := e.size()
	s.record = e.command("nmi")
	e.await(p.answer, func() bool {
		s.answered = bytes.Contains(e.printed(size), []byte("NMI"))
		return s.answered
	})
	if s.answered || !e.Running() {
		s.answered = true
		e.await(p.all, e.silent(p.answer))
		return s
	}
	for range 2 {
		s.record += e.threads() + e.command("info registers -a")
		e.await(p.apart, func() bool { return false })
	}
	return s
}

// threads is how long each thread of QEMU has run and has waited for a processor, ns, and how often it ran
// (schedstat in proc(5)): what differs between a QEMU that waits, loops, or has no processor.
func (e *emulator) threads() (text string) {
	found, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", e.PID()))
	for _, file := range found {
		spent, _ := os.ReadFile(file) // a thread that has ended has none
		text += fmt.Sprintf("thread %s: %s", filepath.Base(filepath.Dir(file)), spent)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%sthe host's load: %s", text, load)
}

// end is the last of a text, in whole lines.
func end(text []byte, size int) []byte {
	if len(text) > size {
		_, text, _ = bytes.Cut(text[len(text)-size:], []byte("\n"))
	}
	return text
}
