package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a path must not change before it is read: editors write in several
// steps.
const settle = 200 * time.Millisecond

// Manifest is a manifest that another process wrote or removed.
type Manifest struct {
	Resource string
	Key      Key
	Object   Object // as decoded; nil where it was removed
}

// Follower follows the changes of other processes in a store's directory.
type Follower struct {
	store    *Store
	watcher  *fsnotify.Watcher
	admit    func(Manifest) error
	touched  map[string]time.Time   // paths, by when they were last written to
	reported map[string]os.FileInfo // bad files, as they were when they were reported
}

// Follow passes on the manifests that other processes wrote while the store was closed;
// Run continues with their later changes. A refused manifest is logged once and not
// changed.
func (s *Store) Follow(admit func(Manifest) error) (*Follower, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", s.cfg.Data, err)
	}
	f := &Follower{s, watcher, admit, map[string]time.Time{}, map[string]os.FileInfo{}}
	if err := f.rescan(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", s.cfg.Data, err), watcher.Close())
	}
	return f, nil
}

// Run passes on changes until ctx ends. It runs once.
func (f *Follower) Run(ctx context.Context) error {
	tick := time.NewTicker(settle)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return f.watcher.Close()
		case event := <-f.watcher.Events:
			f.noticed(event)
		case err := <-f.watcher.Errors:
			f.store.cfg.Log.Warn("changes to manifests were missed; all are read again", "error", err)
			if err := f.rescan(); err != nil {
				f.store.cfg.Log.Error("manifests cannot be read", "error", err)
			}
		case now := <-tick.C:
			f.settled(now)
		}
	}
}

// rescan watches every directory, and checks every manifest and every object that
// should have one.
func (f *Follower) rescan() error {
	for _, name := range f.store.onDisk {
		t := f.store.tables[name]
		if err := f.watch(t.dir(""), time.Time{}); err != nil {
			return err
		}
		objects, _ := t.List("")
		for _, o := range objects {
			f.touched[t.path(KeyOf(o))] = time.Time{}
		}
	}
	f.settled(time.Now())
	return nil
}

// watch watches a directory and those in it, and marks the manifests there as written
// at a time.
func (f *Follower) watch(dir string, at time.Time) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return ignoreGone(err)
		}
		if d.IsDir() {
			return ignoreGone(f.watcher.Add(path))
		}
		f.touched[path] = at
		return nil
	})
}

func (f *Follower) noticed(event fsnotify.Event) {
	if t, _ := f.store.place(event.Name); t != nil {
		f.touched[event.Name] = time.Now()
		return
	}
	if info, err := os.Lstat(event.Name); err != nil || !info.IsDir() {
		return
	}
	if err := f.watch(event.Name, time.Now()); err != nil {
		f.store.cfg.Log.Error("manifests in a new directory are not followed", "directory", event.Name, "error", err)
	}
}

// settled checks the paths that have not changed for settle.
func (f *Follower) settled(now time.Time) {
	var paths []string
	for path, at := range f.touched {
		if now.Sub(at) >= settle {
			paths = append(paths, path)
			delete(f.touched, path)
		}
	}
	rank := func(path string) int {
		t, _ := f.store.place(path)
		return slices.Index(f.store.onDisk, t.name)
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { t, _ := f.store.place(path); return t == nil })
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(rank(a)-rank(b), cmp.Compare(a, b)) })
	for _, path := range paths {
		f.look(path)
	}
}

// look passes on a manifest that differs from what the store wrote.
func (f *Follower) look(path string) {
	s := f.store
	t, key := s.place(path)
	if t.wrote(path, key) {
		delete(f.reported, path)
		return
	}
	m := Manifest{Resource: t.name, Key: key}
	text, info, err := read(path)
	gone := errors.Is(err, fs.ErrNotExist)
	if seen := f.reported[path]; seen != nil && info != nil && same(seen, info) {
		return
	}
	if err == nil {
		m.Object, err = s.cfg.Decode(t.name, key, text)
	}
	if err == nil || gone {
		err = f.admit(m)
	}
	delete(f.reported, path)
	if err == nil {
		return
	}
	f.reported[path] = info
	s.cfg.Log.Error("manifest not taken", "file", path, "error", err)
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

func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
