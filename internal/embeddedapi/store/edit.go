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
	taking  map[string]chan struct{} // closed at the end of the admission
	refused map[string]os.FileInfo
}

// refusedExtension is added to the name of a manifest that is set aside.
const refusedExtension = ".refused"

// begin says whether the caller is to admit the manifest: it is not being admitted, and
// it has changed since it was refused.
func (e *edits) begin(path string, info os.FileInfo) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.taking[path] != nil || e.wasRefused(path, info) {
		return false
	}
	e.taking[path] = make(chan struct{})
	return true
}

// wasRefused is called under the lock; info is nil for a manifest that was removed.
func (e *edits) wasRefused(path string, info os.FileInfo) bool {
	seen, refused := e.refused[path]
	if !refused || seen == nil || info == nil {
		return refused && seen == nil && info == nil
	}
	return same(seen, info)
}

// end keeps what was refused.
func (e *edits) end(path string, refused bool, info os.FileInfo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.taking[path])
	delete(e.taking, path)
	delete(e.refused, path)
	if refused {
		e.refused[path] = info
	}
}

// state returns a channel that is closed at the end of the manifest's admission, nil where it is not
// being admitted, and whether it was refused as it is now.
func (e *edits) state(path string) (taking <-chan struct{}, refused bool) {
	info, err := os.Lstat(path)
	if err != nil {
		info = nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.taking[path], e.wasRefused(path, info)
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
	} else {
		s.cfg.Log.Error("manifest not taken", "file", path, "error", err)
	}
	f.edits.end(path, err != nil, info)
}

// wrote says whether the table wrote the file at a path.
func (t *Table) wrote(path string, key Key) bool {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.isOurs(path, key)
}

// isOurs is called while no change is made.
func (t *Table) isOurs(path string, key Key) bool {
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

// A write waits for an editor that does not finish at most so often for settle, and for the
// admissions of a manifest at most for longestTaking: admissions may wait for each other.
const (
	waits         = 25
	longestTaking = 5 * time.Second
)

// lock begins a change of an object. What another process has done to its manifest is admitted before;
// a manifest that was refused is set aside.
func (t *Table) lock(key Key) error {
	path, f := t.path(key), t.store.follower
	var over <-chan time.Time
	for attempt, waited := 0, false; ; {
		t.writing.Lock()
		if t.taking || !t.isFile(key) || t.isOurs(path, key) || waited {
			return nil
		}
		var taking <-chan struct{}
		refused := true
		if f != nil {
			taking, refused = f.edits.state(path)
		}
		if taking != nil {
			t.writing.Unlock()
			if over == nil {
				over = time.After(longestTaking)
			}
			select {
			case <-taking:
			case <-over:
				waited = true
			}
			continue
		}
		if refused || attempt == waits {
			err := t.setAside(path)
			if err != nil {
				t.writing.Unlock()
			}
			return err
		}
		t.writing.Unlock()
		f.await(path)
		attempt++
	}
}

// await waits until an editor is done with a manifest, and takes it.
func (f *Follower) await(path string) {
	pause := settle
	info, err := os.Lstat(path)
	if err == nil {
		pause = min(settle, settle-time.Since(info.ModTime()))
	}
	time.Sleep(pause)
	if now, gone := os.Lstat(path); (gone == nil) == (err == nil) && (gone != nil || same(now, info)) {
		f.take(path)
	}
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
