// Package undo changes kernel settings temporarily. The previous value of a file is
// recorded before the change, in a log that survives the process: the next process, or
// `evictd undo`, restores what is left. The package decides nothing and does not depend
// on cgroups.
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
	// A log has slots of slotSize bytes, each within one page: a killed process has
	// written a slot completely or not at all.
	slotSize = 512
	slots    = 256
)

// ErrFull says that the log is full; the file was not changed.
var ErrFull = errors.New("too many settings are changed")

// Log records the settings that this process has changed. Its file needs no sync: the
// settings do not survive a reboot either. Any goroutine may use it.
type Log struct {
	mu      sync.Mutex
	file    *os.File // locked until the process ends
	changes map[string]*Change
	used    [slots]bool
}

// Change is a changed setting.
type Change struct {
	record
	log     *Log
	slot    int // negative: nothing was changed
	holders int
}

// record is a Change as recorded in the log.
type record struct {
	Path string `json:"path"`
	Was  string `json:"was"`
	Set  string `json:"set"`
	// Before was set before Set. While it is recorded, the file may have either.
	Before string `json:"before,omitempty"`
}

// Set writes a value to a file until the change is undone. Of several changes of one
// file, undoing the last one restores it. A file that already has the value is not
// written. The error is fs.ErrNotExist where the file does not exist.
func (l *Log) Set(path, value string) (*Change, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.changes[path]
	var before record
	if c == nil {
		was, err := read(path)
		if err != nil {
			return nil, err
		}
		if shows(was, value) {
			return &Change{log: l, slot: -1}, nil
		}
		if c, err = l.add(record{Path: path, Was: was, Set: value}); err != nil {
			return nil, fmt.Errorf("set %s: %w", path, err)
		}
	} else if before = c.record; c.Set != value {
		changed := record{Path: path, Was: c.Was, Set: value, Before: c.Set}
		if err := l.write(c.slot, changed); err != nil {
			return nil, fmt.Errorf("set %s: %w", path, err)
		}
		c.Set = value
	}
	if err := write(path, value); err != nil {
		if c.holders == 0 {
			l.forget(c)
		} else {
			c.record = before // a process that is killed now leaves a record of both
		}
		return nil, err
	}
	c.holders++
	return c, nil
}

// Undo restores the value of the file, unless it was written by another process since.
// A file that no longer exists needs nothing.
func (c *Change) Undo() error {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	if c.holders--; c.holders > 0 || c.slot < 0 {
		return nil
	}
	_, err := c.restore()
	if err == nil {
		c.log.forget(c)
	}
	return err // the record stays, for Recover
}

// restore says whether it has written.
func (r *record) restore() (bool, error) {
	now, err := read(r.Path)
	if err == nil && !shows(now, r.Set) && (r.Before == "" || !shows(now, r.Before)) {
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

// shows says whether a file has a value that was written to it: further fields may
// follow (cpu.max), or the change may be in progress (v1 freezer).
func shows(shown, value string) bool {
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

// gone: kernfs returns ENODEV for an open file of a removed group.
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

// forget clears a record. A failure has no effect: the file no longer has the set
// value.
func (l *Log) forget(c *Change) {
	if _, err := l.file.WriteAt(make([]byte, slotSize), int64(c.slot)*slotSize); err == nil {
		l.used[c.slot] = false
	}
	delete(l.changes, c.Path)
}

// records reads a log. Torn records are skipped.
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
