package node_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// roleVariable makes the test binary play a pod's process: it does what the
// lines on its standard input say, answers each with "ok" or the error, and ends
// with its input.
const roleVariable = "EVICTD_NODE_TEST_POD"

const mib = 1 << 20

func playPod() {
	p := &player{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		act, known := map[string]func(args []string) error{
			"hold": p.hold, "leak": p.leak, "stamps": p.stampInto, "ignore-term": p.ignoreTerm,
			"linger": p.linger, "fork": p.fork, "fill": p.fill, "files": p.files,
			"grab": p.grab, "enter": p.enter, "read": p.read, "storm": p.storm, "rename": rename, "shell": p.shell,
		}[word]
		err := errors.New("unknown command")
		if known {
			err = act(strings.Fields(rest))
		}
		if err != nil {
			fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok")
		}
	}
	os.Exit(0)
}

// player is the process of a pod. Its memory is a mapping of its own, so that
// neither the collector nor the race detector have a share in it.
type player struct {
	memory []byte
	held   int    // bytes
	stamps []byte // shared with the test: when each step was taken

	grabbed []*os.File // deleted, and open
}

// most is what a pod can ever hold.
const most = 768 * mib

// stampEvery is how much memory lies between two stamps.
const stampEvery = 256 << 10

// rename NAME calls the process so, a Go string in quotes.
func rename(args []string) error {
	name, err := strconv.Unquote(args[0])
	if err != nil {
		return err
	}
	return os.WriteFile("/proc/self/comm", []byte(name), 0)
}

// hold MIB touches or gives back memory until so much is held.
func (p *player) hold(args []string) error { return p.holdBytes(number(args, 0) * mib) }

func (p *player) holdBytes(target int) error {
	if p.memory == nil {
		var err error
		p.memory, err = unix.Mmap(-1, 0, most, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			return err
		}
	}
	if target < p.held {
		err := unix.Madvise(p.memory[target:p.held], unix.MADV_DONTNEED)
		p.held = target
		return err
	}
	for ; p.held < target; p.held += os.Getpagesize() {
		p.memory[p.held] = 1
		if p.stamps != nil && p.held%stampEvery == 0 {
			binary.NativeEndian.PutUint64(p.stamps[p.held/stampEvery*8:], uint64(time.Now().UnixNano()))
		}
	}
	return nil
}

// leak RATE CAP holds more and more in the background, RATE MiB a second, or as
// fast as it goes where that is 0, up to CAP MiB.
func (p *player) leak(args []string) error {
	rate, most := number(args, 0), number(args, 1)*mib
	begun, before := time.Now(), p.held
	go func() {
		for p.held < most {
			target := most
			if rate > 0 {
				<-time.After(time.Millisecond)
				target = min(most, before+int(time.Since(begun).Seconds()*float64(rate*mib)))
			}
			if p.holdBytes(target) != nil {
				return
			}
		}
	}()
	return nil
}

// stamps FILE notes there when each stampEvery of memory was touched.
func (p *player) stampInto(args []string) error {
	f, err := os.OpenFile(args[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	p.stamps, err = unix.Mmap(int(f.Fd()), 0, most/stampEvery*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	return err
}

func (p *player) ignoreTerm([]string) error {
	signal.Ignore(unix.SIGTERM)
	return nil
}

// linger DURATION takes so long to end in order when told to.
func (p *player) linger(args []string) error {
	pause, err := time.ParseDuration(args[0])
	term := make(chan os.Signal, 1)
	signal.Notify(term, unix.SIGTERM)
	go func() {
		<-term
		<-time.After(pause)
		os.Exit(0)
	}()
	return err
}

// fork N starts children, as many of them as the kernel allows.
func (p *player) fork(args []string) error {
	for range number(args, 0) {
		child := exec.Command("sleep", "600")
		switch err := child.Start(); {
		case errors.Is(err, syscall.EAGAIN):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// fill FILE MIB writes a file of that size to its disk.
func (p *player) fill(args []string) error {
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, mib)
	for range number(args, 1) {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return f.Sync()
}

// grab FILE MIB fills a file, deletes it and keeps it open.
func (p *player) grab(args []string) error {
	if err := p.fill(args); err != nil {
		return err
	}
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	p.grabbed = append(p.grabbed, f)
	return os.Remove(args[0])
}

// enter DIR makes it the root, as a runtime does for a container.
func (p *player) enter(args []string) error {
	return errors.Join(unix.Chroot(args[0]), unix.Chdir("/"))
}

// read FILE reads a file once.
func (p *player) read(args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f})
	return err
}

// shell LINE runs it in the background.
func (p *player) shell(args []string) error {
	return exec.Command("sh", "-c", strings.Join(args, " ")).Start()
}

// storm FILE N reads a file N times.
func (p *player) storm(args []string) error {
	for range number(args, 1) {
		if err := p.read(args); err != nil {
			return err
		}
	}
	return nil
}

// files DIR N makes N empty files.
func (p *player) files(args []string) error {
	for i := range number(args, 1) {
		if err := os.WriteFile(filepath.Join(args[0], strconv.Itoa(i)), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func number(args []string, i int) int {
	n, err := strconv.Atoi(args[i])
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	return n
}
