package store

import (
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
	store   *Store
	watcher *fsnotify.Watcher
	admit   func(Manifest) error
	touched map[string]time.Time // paths, by when they were last written to
	edits   edits
}

// Follow makes a follower. From then on a change of an object whose manifest another process
// has written waits until that manifest is admitted or refused. Read reads what was written
// while the store was closed, Run follows later changes. A refused manifest is logged once, and
// set aside by the next write of its object.
func (s *Store) Follow(admit func(Manifest) error) (*Follower, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", s.cfg.Data, err)
	}
	s.follower = &Follower{store: s, watcher: watcher, admit: admit, touched: map[string]time.Time{}}
	s.follower.edits = edits{taking: map[string]chan struct{}{}, refused: map[string]identity{}}
	return s.follower, nil
}

// Read passes on the manifests that other processes wrote, and watches all directories. Without Run
// the caller closes the follower.
func (f *Follower) Read() error {
	if err := f.rescan(); err != nil {
		return errors.Join(fmt.Errorf("watch %s: %w", f.store.cfg.Data, err), f.watcher.Close())
	}
	return nil
}

// Run passes on changes until ctx ends. It runs once.
func (f *Follower) Run(ctx context.Context) error {
	var quiet <-chan time.Time // while paths are to be checked
	for {
		if quiet == nil && len(f.touched) > 0 {
			quiet = time.After(settle)
		}
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
		case now := <-quiet:
			quiet = nil
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
	if t, key := f.store.place(event.Name); t != nil {
		if _, ours := t.compare(key); !ours {
			f.touched[event.Name] = time.Now()
		}
		return
	}
	if info, err := os.Lstat(event.Name); err != nil || !info.IsDir() {
		return
	}
	if err := f.watch(event.Name, time.Now()); err != nil {
		f.store.cfg.Log.Error("manifests in a new directory are not followed", "directory", event.Name, "error", err)
	}
}

// settled checks the paths that have not changed for settle, in the order of their tables.
func (f *Follower) settled(now time.Time) {
	paths := map[*Table][]string{}
	for path, at := range f.touched {
		if now.Sub(at) < settle {
			continue
		}
		delete(f.touched, path)
		t, _ := f.store.place(path)
		paths[t] = append(paths[t], path)
	}
	for _, name := range f.store.onDisk {
		for _, path := range slices.Sorted(slices.Values(paths[f.store.tables[name]])) {
			f.take(path)
		}
	}
}
