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
	refused map[string]identity
}

// refusedExtension is added to the name of a manifest that is set aside.
const refusedExtension = ".refused"

// begin says whether the caller is to admit the manifest: it is not being admitted, and
// it has changed since it was refused.
func (e *edits) begin(path string, manifest identity) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.taking[path] != nil || e.wasRefused(path, manifest) {
		return false
	}
	e.taking[path] = make(chan struct{})
	return true
}

// wasRefused is called under the lock.
func (e *edits) wasRefused(path string, manifest identity) bool {
	seen, refused := e.refused[path]
	return refused && seen == manifest
}

// end keeps what was refused.
func (e *edits) end(path string, refused bool, manifest identity) {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.taking[path])
	delete(e.taking, path)
	delete(e.refused, path)
	if refused {
		e.refused[path] = manifest
	}
}

// state returns a channel that is closed at the end of the manifest's admission, nil where it is not
// being admitted, and whether it was refused as it is now.
func (e *edits) state(path string) (taking <-chan struct{}, refused bool) {
	now := lstat(path)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.taking[path], e.wasRefused(path, now)
}

// take passes on a manifest that differs from what the store wrote.
func (f *Follower) take(path string) {
	s := f.store
	t, key := s.place(path)
	if t == nil {
		return
	}
	found, ours := t.compare(key)
	if ours || !f.edits.begin(path, found) {
		return
	}
	text, err := read(path)
	m := Manifest{Resource: t.name, Key: key}
	gone := errors.Is(err, fs.ErrNotExist)
	if err == nil {
		m.Object, err = s.cfg.Decode(t.name, key, text)
	}
	if err == nil || gone {
		err = f.admit(m)
	}
	if err == nil {
		t.adopt(key, found)
	} else {
		s.cfg.Log.Error("manifest not taken", "file", path, "error", err)
	}
	f.edits.end(path, err != nil, found)
}

// A write waits for an editor that does not finish at most so often for settle, and for the
// admissions of a manifest at most for longestTaking: admissions may wait for each other.
const (
	waits         = 25
	longestTaking = 5 * time.Second
)

// lock begins a change of an object. What another process has done to its manifest is admitted before.
func (t *Table) lock(key Key) {
	f := t.store.follower
	var over <-chan time.Time
	for attempt, waited := 0, false; ; {
		t.writing.Lock()
		if t.taking || !t.isFile(key) || f == nil || waited || attempt == waits {
			return
		}
		if _, ours := t.compare(key); ours {
			return
		}
		path := t.path(key)
		taking, refused := f.edits.state(path)
		if taking == nil && refused {
			return
		}
		t.writing.Unlock()
		if taking == nil {
			f.await(path)
			attempt++
			continue
		}
		if over == nil {
			over = time.After(longestTaking)
		}
		select {
		case <-taking:
		case <-over:
			waited = true
		}
	}
}

// isRefused says that a manifest was refused as it is now.
func (t *Table) isRefused(path string) bool {
	if t.store.follower == nil {
		return false
	}
	taking, refused := t.store.follower.edits.state(path)
	return taking == nil && refused
}

// await waits until an editor is done with a manifest, and takes it.
func (f *Follower) await(path string) {
	pause, found := settle, lstat(path)
	if found != (identity{}) {
		pause = min(settle, settle-time.Since(time.Unix(0, found.modified)))
	}
	time.Sleep(pause)
	if lstat(path) == found {
		f.take(path)
	}
}

// setAside renames a manifest that was not taken. There may be none.
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
