package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// edits are the manifests of other processes that are being admitted, and those that were
// refused, as they were then; both by path.
type edits struct {
	mu      sync.Mutex
	taking  map[string]bool
	refused map[string]os.FileInfo
}

// refusedExtension is added to the name of a manifest that is set aside.
const refusedExtension = ".refused"

// begin says whether the caller is to admit the manifest: it is not being admitted, and
// it has changed since it was refused.
func (e *edits) begin(path string, info os.FileInfo) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := e.refused[path]
	if e.taking[path] || seen != nil && info != nil && same(seen, info) {
		return false
	}
	e.taking[path] = true
	return true
}

// end keeps what was refused; refused is nil where nothing was.
func (e *edits) end(path string, refused os.FileInfo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.taking, path)
	delete(e.refused, path)
	if refused != nil {
		e.refused[path] = refused
	}
}

// take passes on a manifest that differs from what the store wrote.
func (f *Follower) take(path string) {
	s := f.store
	t, key := s.place(path)
	if t == nil || t.wrote(path, key) {
		return
	}
	text, info, err := read(path)
	if !f.edits.begin(path, info) {
		return
	}
	m := Manifest{Resource: t.name, Key: key}
	gone := errors.Is(err, fs.ErrNotExist)
	if err == nil {
		m.Object, err = s.cfg.Decode(t.name, key, text)
	}
	if err == nil || gone {
		err = f.admit(m)
	}
	if err == nil {
		t.adopt(key, m.Object, info)
		info = nil
	} else {
		s.cfg.Log.Error("manifest not taken", "file", path, "error", err)
	}
	f.edits.end(path, info)
}

// wrote says whether the table wrote the file at a path.
func (t *Table) wrote(path string, key Key) bool {
	t.writing.Lock()
	defer t.writing.Unlock()
	t.mu.RLock()
	e := t.objects[key]
	t.mu.RUnlock()
	info, err := os.Lstat(path)
	if err != nil {
		return e.object == nil
	}
	return e.file != nil && same(e.file, info)
}

// adopt makes a manifest that was admitted and changed nothing the one of its object.
func (t *Table) adopt(key Key, admitted Object, info os.FileInfo) {
	t.writing.Lock()
	defer t.writing.Unlock()
	now, err := os.Lstat(t.path(key))
	if admitted == nil || err != nil || !same(now, info) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.objects[key]; e.object != nil {
		t.objects[key] = entry{e.object, info}
	}
}

// waits bounds how long a write waits for an editor that does not finish, in settle.
const waits = 25

// takeEdit admits what another process has done to the manifest of an object, before the object is
// changed, and sets a refused manifest aside. It does nothing while that manifest is being
// admitted, which is a change, too.
func (t *Table) takeEdit(key Key) error {
	f := t.store.follower
	if !t.isFile(key) {
		return nil
	}
	path := t.path(key)
	for range waits {
		if t.wrote(path, key) || f != nil && f.edits.busy(path) {
			return nil
		}
		pause := settle
		if info, err := os.Lstat(path); err == nil {
			pause = min(settle, settle-time.Since(info.ModTime()))
		}
		time.Sleep(pause)
		if _, err := os.Lstat(path); pause > 0 && err == nil {
			continue // it may have changed meanwhile
		}
		if f != nil {
			f.take(path)
		}
		break
	}
	if t.wrote(path, key) || f != nil && f.edits.busy(path) {
		return nil
	}
	return t.setAside(path)
}

func (e *edits) busy(path string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.taking[path]
}

// setAside renames a manifest that was not taken.
func (t *Table) setAside(path string) error {
	aside := path + refusedExtension
	if name := filepath.Base(path); len(name) > longest-len(refusedExtension) {
		aside = filepath.Join(filepath.Dir(path), name[:longest-len(refusedExtension)-1]+refusedExtension)
	}
	err := os.Rename(path, aside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set a refused manifest aside: %w", err)
	}
	t.store.cfg.Log.Warn("a manifest that was not taken is set aside", "file", aside)
	return nil
}
