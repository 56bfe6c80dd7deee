package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// roleVariable makes the program play something else than the harness, with the program's arguments.
const roleVariable = "EVICTD_BENCH_ROLE"

const (
	mib = 1 << 20
	// stampEvery is how much memory lies between two stamps.
	stampEvery = 64 << 10
)

// stampsSize is the size of a file of stamps, in bytes, of a process that fills so many MiB.
func stampsSize(most int) int { return most * mib / stampEvery * 8 }

// Lines between the harness and a process that fills memory.
const (
	begin = "begin" // the process is in its cgroup
	done  = "ok"
)

func play(role string, args []string) {
	switch role {
	case "fill":
		fill(args)
	case "spin":
		for os.Getppid() != 1 { // as long as the bench runs
		}
	case "churn":
		churn()
	case "inside":
		inside(args)
	}
	os.Exit(2)
}

// fill stamps into a file when it has touched each stampEvery of memory (CLOCK_MONOTONIC, nanoseconds). Its arguments
// are the file and the most MiB that it fills. Its orders are lines "MIB RATE": hold so much, at so many GiB a second
// or, if that is 0, as fast as it goes.
func fill(args []string) {
	most, err := strconv.Atoi(args[1])
	must(err)
	stamps, err := mapStamps(args[0], most, os.O_RDWR, unix.PROT_READ|unix.PROT_WRITE)
	must(err)
	memory, err := unix.Mmap(-1, 0, most*mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	must(err)
	// Small pages: a huge one would be 2 MiB in a moment. A kernel without huge pages does not know the advice.
	if err := unix.Madvise(memory, unix.MADV_NOHUGEPAGE); !errors.Is(err, unix.EINVAL) {
		must(err)
	}
	held := 0
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		if orders.Text() == begin {
			continue
		}
		mibs, rate, _ := strings.Cut(orders.Text(), " ")
		n, err := strconv.Atoi(mibs)
		must(err)
		perSecond, err := strconv.ParseFloat(rate, 64)
		must(err)
		begun, before := time.Now(), held
		for held < min(n, most)*mib {
			target := min(n, most) * mib
			if perSecond > 0 {
				target = min(target, before+int(time.Since(begun).Seconds()*perSecond*float64(1<<30)))
			}
			for ; held < target; held += os.Getpagesize() {
				memory[held] = 1
				if held%stampEvery == 0 {
					binary.NativeEndian.PutUint64(stamps[held/stampEvery*8:], uint64(monotonic()))
				}
			}
			if perSecond > 0 {
				unix.Nanosleep(&unix.Timespec{Nsec: 100_000}, nil)
			}
		}
		fmt.Println(done)
	}
	os.Exit(0)
}

// mapStamps maps a file of stamps.
func mapStamps(name string, most, open, protection int) ([]byte, error) {
	f, err := os.OpenFile(name, open, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	stamps, err := unix.Mmap(int(f.Fd()), 0, stampsSize(most), protection, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}
	return stamps, nil
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
}

// monotonic is CLOCK_MONOTONIC in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail
	return now.Nano()
}

// self makes a process of this program that plays a role.
func self(role string, args ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", args...)
	c.Env = append(os.Environ(), roleVariable+"="+role)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	return c
}

// churn keeps the kernel busy as builds do, as long as the bench runs: it takes memory and
// gives it back, fills a file and truncates it, and starts a process, which ends at once.
func churn() {
	file, err := os.CreateTemp("", "evictd-bench-")
	must(err)
	must(os.Remove(file.Name()))
	block := make([]byte, mib)
	for os.Getppid() != 1 {
		memory, err := unix.Mmap(-1, 0, 32*mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		must(err)
		for at := 0; at < len(memory); at += os.Getpagesize() {
			memory[at] = 1
		}
		must(unix.Munmap(memory))
		for at := range int64(8) {
			_, err := file.WriteAt(block, at*mib)
			must(err)
		}
		must(file.Truncate(0))
		_ = self("none").Run() // its status says nothing
	}
}

// startHogs takes the processors until it is stopped. Every other process churns.
func startHogs(n int) (stop func(), err error) {
	var hogs []*exec.Cmd
	stop = func() {
		for _, h := range hogs {
			_ = h.Process.Kill()
			_ = h.Wait() // which says that it was killed
		}
	}
	for i := range n {
		h := self([2]string{"spin", "churn"}[i%2])
		h.Env = append(h.Env, "GOMAXPROCS=1")
		if err := h.Start(); err != nil {
			stop()
			return nil, err
		}
		hogs = append(hogs, h)
	}
	return stop, nil
}
