// Package undo changes kernel settings for a while. What a file held is recorded
// before it is changed, in a log that outlives the process; whoever comes next
// puts back what the process did not come to. It decides nothing and knows no
// cgroups.
package undo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
)

const (
	// A log has slots of slotSize bytes, each within one page: a process that is
	// killed has written one whole or not at all.
	slotSize = 512
	slots    = 256
)

// ErrFull says that no more changes can be recorded; the file was left alone.
var ErrFull = errors.New("too many settings are changed")

// Log is the settings that this process has changed. Its file needs no sync: the
// settings do not outlive the machine either. Any goroutine may use it.
type Log struct {
	mu      sync.Mutex
	file    *os.File // locked for as long as the process lives
	changes map[string]*Change
	used    [slots]bool
}

// Change is a setting that is not as it was found.
type Change struct {
	record
	log     *Log
	slot    int // negative: nothing was changed
	holders int
}

// record is a Change as the log holds it.
type record struct {
	Path string `json:"path"`
	Was  string `json:"was"`
	Set  string `json:"set"`
}

// Set writes a value into a file until the change is undone. A file that several
// have changed is put back by the last of them; one that shows the value already
// is left alone. The error is fs.ErrNotExist where the file is gone.
func (l *Log) Set(path, value string) (*Change, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.changes[path]
	if c == nil {
		was, err := read(path)
		if err != nil {
			return nil, err
		}
		if holds(was, value) {
			return &Change{log: l, slot: -1}, nil
		}
		if c, err = l.add(record{Path: path, Was: was, Set: value}); err != nil {
			return nil, fmt.Errorf("set %s: %w", path, err)
		}
	} else if c.Set != value {
		changed := c.record
		changed.Set = value
		if err := l.write(c.slot, changed); err != nil {
			return nil, fmt.Errorf("set %s: %w", path, err)
		}
		c.record = changed
	}
	if err := write(path, value); err != nil {
		if c.holders == 0 {
			l.forget(c)
		}
		return nil, err
	}
	c.holders++
	return c, nil
}

// Undo puts back what the file held, unless somebody else has written it since.
// One that is gone needs nothing.
func (c *Change) Undo() error {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	if c.holders--; c.holders > 0 || c.slot < 0 {
		return nil
	}
	_, err := c.putBack()
	if err == nil {
		c.log.forget(c)
	}
	return err // the record stays, for whoever comes next
}

// putBack says whether it has written.
func (r *record) putBack() (bool, error) {
	now, err := read(r.Path)
	if err == nil && !holds(now, r.Set) {
		return false, nil
	}
	if err == nil {
		err = write(r.Path, r.Was)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// holds says whether a file shows a value that was written into it: it may show
// more behind it (cpu.max), or that it is not there yet (the v1 freezer).
func holds(shown, value string) bool {
	first, _, _ := strings.Cut(shown, " ")
	return shown == value || first == value || shown == "FREEZING" && value == "FROZEN"
}

func read(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), gone(err)
}

func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return gone(err)
	}
	_, err = f.WriteString(value)
	return gone(errors.Join(err, f.Close()))
}

// gone: kernfs says ENODEV where a group was removed under an open file.
func gone(err error) error {
	if errors.Is(err, syscall.ENODEV) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

func (l *Log) add(r record) (*Change, error) {
	for slot, used := range l.used {
		if used {
			continue
		}
		if err := l.write(slot, r); err != nil {
			return nil, err
		}
		c := &Change{record: r, log: l, slot: slot}
		l.used[slot], l.changes[r.Path] = true, c
		return c, nil
	}
	return nil, ErrFull
}

func (l *Log) write(slot int, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(text) >= slotSize {
		return fmt.Errorf("%w: the path is too long to be recorded", ErrFull)
	}
	_, err = l.file.WriteAt(append(text, make([]byte, slotSize-len(text))...), int64(slot)*slotSize)
	return err
}

// forget clears a record. One that cannot be cleared does no harm: the file no
// longer holds what was set.
func (l *Log) forget(c *Change) {
	if _, err := l.file.WriteAt(make([]byte, slotSize), int64(c.slot)*slotSize); err == nil {
		l.used[c.slot] = false
	}
	delete(l.changes, c.Path)
}

// records reads a log. What is torn is passed over.
func records(log []byte) []record {
	var found []record
	for ; len(log) >= slotSize; log = log[slotSize:] {
		text, _, _ := bytes.Cut(log[:slotSize], []byte{0})
		var r record
		if json.Unmarshal(text, &r) == nil {
			found = append(found, r)
		}
	}
	return found
}
