package workload

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func (w *workload) write(args []string) error {
	var amount, rate int64
	if err := sizes(args[1:], &amount, &rate); err != nil {
		return err
	}
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
	amount, err := size(args[1])
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
	return pour(file, amount)
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
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(args[0], strconv.Itoa(i)), nil, 0o644); err != nil {
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

func (w *workload) read(args []string) error {
	times := int64(1)
	if err := sizes(args[1:], &times); err != nil {
		return err
	}
	for range times {
		if err := readFile(args[0]); err != nil {
			return err
		}
	}
	return nil
}

// readFile reads a file into a buffer, so that it is in the page cache.
func readFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f})
	return err
}

// work is like requests: what is delayed is not made up for.
func (w *workload) work(args []string) error {
	file, err1 := os.Open(args[0])
	count, err2 := os.Create(args[1])
	err := errors.Join(err1, err2)
	if err == nil {
		_, err = count.WriteString("0\n")
	}
	if err != nil {
		return err
	}
	go func() {
		piece := make([]byte, 1<<20)
		tick := time.Tick(50 * time.Millisecond)
		for n := 1; ; n++ {
			_, err := io.ReadFull(file, piece)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				_, err = file.Seek(0, io.SeekStart)
			}
			if err == nil {
				_, err = count.WriteAt(fmt.Appendf(nil, "%d\n", n), 0)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			<-tick
		}
	}()
	return nil
}

func (w *workload) print(args []string) error {
	amount, err := size(args[0])
	if err != nil {
		return err
	}
	line := strings.Repeat("x", 1023) + "\n"
	for ; amount > 0; amount -= int64(len(line)) {
		if _, err := os.Stdout.WriteString(line[max(0, int64(len(line))-amount):]); err != nil {
			return err
		}
	}
	return nil
}
