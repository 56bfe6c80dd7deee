package undo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const prefix, deferred = "undo-", ".deferred"

// Open creates the log of this process in a directory, which it creates. The directory
// should be a tmpfs.
func Open(dir string) (*Log, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a log of changed settings: %w", err)
	}
	for {
		file, err := os.CreateTemp(dir, prefix+"*")
		if err != nil {
			return nil, fmt.Errorf("make a log of changed settings: %w", err)
		}
		kept, err := claim(file)
		if err == nil && kept {
			return &Log{file: file, changes: map[string]*Change{}}, nil
		}
		file.Close()
		if err != nil {
			os.Remove(file.Name())
			return nil, fmt.Errorf("make a log of changed settings: %w", err)
		}
	}
}

// claim locks and allocates a new log. It says whether the log still exists: before it
// was locked, Recover may have removed it.
func claim(file *os.File) (kept bool, err error) {
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return false, err
	}
	if _, err := file.Write(make([]byte, slots*slotSize)); err != nil {
		return false, err
	}
	mine, err := file.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(file.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}

// Close undoes the remaining changes and removes the log.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var faults error
	for _, c := range l.changes {
		_, err := c.restore()
		faults = errors.Join(faults, err)
	}
	if faults == nil {
		faults = os.Remove(l.file.Name())
	}
	return errors.Join(faults, l.file.Close())
}

// Leave leaves the remaining changes to the next Recover, and removes a log without any.
func (l *Log) Leave() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if len(l.changes) == 0 {
		err = os.Remove(l.file.Name())
	}
	return errors.Join(err, l.file.Close())
}

// Recover restores the settings that ended processes left changed, by their logs in a
// directory, and returns the written files. A failed one stays recorded. Logs of other
// users are ignored.
func Recover(dir string) (undone []string, err error) { return recoverLogs(dir, recoverOne) }

// Defer leaves them to the next Recover or Defer of the directory. It restores what was
// deferred before.
func Defer(dir string) (undone []string, err error) {
	return recoverLogs(dir, func(name string) ([]string, error) {
		if strings.HasSuffix(name, deferred) {
			return recoverOne(name)
		}
		return nil, deferOne(name)
	})
}

// Recorded says whether a directory has a log.
func Recorded(dir string) bool {
	logs, _ := filepath.Glob(filepath.Join(dir, prefix+"*"))
	return len(logs) > 0
}

func recoverLogs(dir string, one func(name string) ([]string, error)) (undone []string, err error) {
	logs, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("find logs of changed settings: %w", err)
	}
	var faults error
	for _, name := range logs {
		written, err := one(name)
		undone = append(undone, written...)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults = errors.Join(faults, fmt.Errorf("undo what %s records: %w", name, err))
		}
	}
	return undone, faults
}

// openEnded opens and locks the log of an ended process; nil where the process is running.
func openEnded(name string) (file *os.File, err error) {
	if file, err = os.OpenFile(name, os.O_RDWR|syscall.O_NOFOLLOW, 0); err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		owner, known := info.Sys().(*syscall.Stat_t)
		if !known || int(owner.Uid) != os.Geteuid() || !info.Mode().IsRegular() {
			err = errors.New("it is owned by another user")
		}
	}
	if err != nil || syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func deferOne(name string) error {
	file, err := openEnded(name)
	if file == nil {
		return err
	}
	defer file.Close()
	return os.Rename(name, name+deferred)
}

func recoverOne(name string) (undone []string, err error) {
	file, err := openEnded(name)
	if file == nil {
		return nil, err
	}
	defer file.Close()
	log, err := io.ReadAll(io.LimitReader(file, slots*slotSize))
	if err != nil {
		return nil, err
	}
	var faults error
	for _, r := range records(log) {
		written, err := r.restore()
		if written {
			undone = append(undone, r.Path)
		}
		faults = errors.Join(faults, err)
	}
	if faults == nil {
		faults = os.Remove(name)
	}
	return undone, faults
}
