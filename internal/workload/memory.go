package workload

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// MaxMemory is how much memory a workload can hold, bytes.
	MaxMemory = 8 << 30
	// StampEvery is how much memory lies between two stamps, bytes.
	StampEvery = 64 << 10

	stampSize = 8
	// stampsSize is that of the file.
	stampsSize = MaxMemory / StampEvery * stampSize
	// adviseNoHugePages is MADV_NOHUGEPAGE, see madvise(2).
	adviseNoHugePages = 15
	// populateWrite is MADV_POPULATE_WRITE of Linux 5.14, see madvise(2).
	populateWrite = 23
)

func (w *workload) hold(args []string) error {
	target, err := size(args[0])
	if err != nil {
		return err
	}
	return w.holdBytes(func(int64) int64 { return target })
}

func (w *workload) grow(args []string) error {
	more, err := size(args[0])
	if err != nil {
		return err
	}
	return w.holdBytes(func(held int64) int64 { return held + more })
}

// holdBytes touches or gives back memory until it holds as much as is asked for, given
// what it holds.
func (w *workload) holdBytes(target func(held int64) int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.memory == nil {
		var err error
		w.memory, err = syscall.Mmap(-1, 0, MaxMemory, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
		if err != nil {
			return fmt.Errorf("map memory: %w", err)
		}
		// A huge page would be 2 MiB in a moment. A kernel without them refuses.
		_ = syscall.Madvise(w.memory, adviseNoHugePages)
	}
	page := int64(os.Getpagesize())
	to := min((target(w.held)+page-1)/page*page, MaxMemory)
	if to < w.held {
		err := syscall.Madvise(w.memory[to:w.held], syscall.MADV_DONTNEED)
		w.held = to
		return err
	}
	for w.held < to {
		next := min((w.held/StampEvery+1)*StampEvery, to)
		touch(w.memory[w.held:next], page)
		if w.stamps != nil && w.held%StampEvery == 0 {
			binary.NativeEndian.PutUint64(w.stamps[w.held/StampEvery*stampSize:], uint64(time.Now().UnixNano()))
		}
		w.held = next
	}
	return nil
}

// touch takes memory. A page fault for each page takes user-mode Linux a hundred times as long.
func touch(memory []byte, page int64) {
	if syscall.Madvise(memory, populateWrite) == nil {
		return
	}
	for at := int64(0); at < int64(len(memory)); at += page {
		memory[at] = 1
	}
}

func (w *workload) leak(args []string) error {
	var rate, most int64
	if err := sizes(args, &rate, &most); err != nil {
		return err
	}
	w.mu.Lock()
	before := w.held
	w.mu.Unlock()
	go func() {
		_ = paced(rate, most-before, func(done int64) error {
			return w.holdBytes(func(held int64) int64 { return max(held, before+done) })
		})
	}()
	return nil
}

// burst is like requests that are answered: what is delayed is not made up for.
func (w *workload) burst(args []string) error {
	var rate int64
	if err := sizes(args[:1], &rate); err != nil {
		return err
	}
	lasts, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	go func() {
		const step = 10 * time.Millisecond
		var more int64
		for begun, tick := time.Now(), time.Tick(step); time.Since(begun) < lasts; <-tick {
			if w.holdBytes(func(held int64) int64 { return held + rate/int64(time.Second/step) }) != nil {
				break
			}
			more += rate / int64(time.Second/step)
		}
		_ = w.holdBytes(func(held int64) int64 { return max(0, held-more) })
	}()
	return nil
}

// paced takes steps until the amount is reached, rate a second or, where that is 0, at
// once, or until a step fails. A step gets what is to be done by then.
func paced(rate, amount int64, step func(done int64) error) error {
	if rate == 0 {
		return step(amount)
	}
	begun := time.Now()
	for tick := time.Tick(time.Millisecond); ; <-tick {
		done := min(amount, int64(time.Since(begun).Seconds()*float64(rate)))
		if err := step(done); err != nil || done == amount {
			return err
		}
	}
}

func (w *workload) stampInto(args []string) error {
	f, err := os.OpenFile(args[0], os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(stampsSize); err != nil {
		return err
	}
	w.stamps, err = syscall.Mmap(int(f.Fd()), 0, stampsSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_POPULATE)
	return err
}

// ReadStamps are the times at which a workload with the order stamps touched each
// StampEvery of memory.
func ReadStamps(file string) (touched []time.Time, err error) {
	text, err := os.ReadFile(file)
	for ; len(text) >= stampSize && binary.NativeEndian.Uint64(text) > 0; text = text[stampSize:] {
		touched = append(touched, time.Unix(0, int64(binary.NativeEndian.Uint64(text))))
	}
	return touched, err
}

// bound counts what the Go runtime and the C library may still reserve.
func (w *workload) bound(args []string) error {
	const slack = 256 << 20
	more, err := size(args[0])
	if err != nil {
		return err
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	pages, err := strconv.ParseUint(strings.Fields(string(statm))[0], 10, 40)
	if err != nil {
		return fmt.Errorf("read own size: %w", err)
	}
	limit := pages*uint64(os.Getpagesize()) + uint64(more) + slack
	return syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: limit, Max: limit})
}
