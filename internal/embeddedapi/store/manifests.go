package store

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

const (
	quiet  = 50 * time.Millisecond // without a change, after which manifests are written
	behind = time.Second           // how long changes that do not cease defer them
)

// errEdited says that another process has edited a manifest that is to be written.
var errEdited = errors.New("the manifest was edited")

// identity is what an edit of a manifest changes; zero where there is no manifest.
type identity struct {
	inode          uint64
	modified, size int64 // nanoseconds, bytes
}

// left is a manifest as the store left it, and the revision of what it wrote.
type left struct {
	identity
	revision uint64
}

// Run writes the manifests of what has changed, until ctx ends. Without it they are written when
// the journal has no room, and by Close.
func (s *Store) Run(ctx context.Context) {
	failing := false
	for wait := (<-chan time.Time)(nil); ; {
		select {
		case <-ctx.Done():
			return
		case <-wait:
		case <-s.journal.more:
			s.awaitQuiet(ctx)
		}
		wait = nil
		left, err := s.writeManifests()
		if (err != nil) != failing {
			if failing = err != nil; failing {
				s.cfg.Log.Error("manifests cannot be written; changes are in the journal, and the manifests are tried again", "error", err)
			} else {
				s.cfg.Log.Info("all manifests are written again")
			}
		}
		if _, empty := s.journal.state(); left || !empty {
			wait = time.After(settle)
		}
	}
}

// awaitQuiet waits until there are no changes for a moment, at most for behind.
func (s *Store) awaitQuiet(ctx context.Context) {
	over := time.Now().Add(behind)
	for before, _ := s.journal.state(); time.Now().Before(over); {
		select {
		case <-ctx.Done():
			return
		case <-time.After(quiet):
		}
		now, _ := s.journal.state()
		if now == before {
			return
		}
		before = now
	}
}

// writeManifests writes all pending manifests, and empties the file of the journal in which their
// changes are. It says whether manifests are left. The error is the first one, but for edits, which
// are left until they are admitted.
func (s *Store) writeManifests() (left bool, err error) {
	s.rounds.Lock()
	defer s.rounds.Unlock()
	taken, err := s.journal.turn()
	rest := map[item]pending{}
	for i, p := range taken {
		fault := s.tables[i.resource].bring(i.Key, p.object, p.tries >= waits)
		switch {
		case fault == nil:
			continue
		case errors.Is(fault, errEdited):
			p.tries++
		case err == nil:
			err = fault
		}
		rest[i] = p
	}
	s.journal.putBack(rest)
	if err == nil && len(taken) > 0 {
		err = s.journal.syncDisk()
	}
	if err == nil && len(rest) == 0 {
		err = s.journal.empty()
	}
	s.journal.measure()
	return len(rest) > 0, err
}

// flush writes all manifests and empties the journal of what was added before. It says whether it has.
func (s *Store) flush() (done bool, err error) {
	for range 2 { // each empties one file
		left, err := s.writeManifests()
		if left || err != nil {
			return false, err
		}
	}
	return true, nil
}

// record brings a change of an object to the journal; where that has no room, its manifest to the
// directory. It returns what commit waits for, and is called during a change.
func (t *Table) record(key Key, change *Change) (uint64, error) {
	r := record{item: item{t.name, key}, revision: change.Revision, kind: kindRemoved}
	var object Object // nil for a removal
	if change.Type != watch.Deleted {
		var err error
		object, r.kind = change.New, kindPut
		if r.object, err = t.store.cfg.Encode(object); err != nil {
			return 0, err
		}
		change.object = r.object
	}
	n, err := t.add(&r, object)
	if err == nil {
		return n, nil
	}
	if done, fault := t.store.flush(); !done {
		return 0, errors.Join(err, fault)
	}
	if n, err = t.add(&r, object); err == nil {
		return n, nil
	}
	t.store.rounds.Lock()
	defer t.store.rounds.Unlock()
	if err = t.bring(key, object, true); err == nil {
		err = t.store.journal.syncDisk()
	}
	return 0, err
}

// add adds a record with the present manifest.
func (t *Table) add(r *record, object Object) (uint64, error) {
	t.disk.Lock()
	defer t.disk.Unlock()
	r.manifest = t.files[r.Key]
	return t.store.journal.add(r, object)
}

// bring writes the manifest of an object, or removes it. One that was edited is left to its
// admission, or with last set aside.
func (t *Table) bring(key Key, object Object, last bool) error {
	whole := filepath.Join(t.store.cfg.Data, scratch, t.name)
	if object == nil {
		return t.swap(key, last, left{}, func(path string, old identity) error { return removeUnedited(path, whole, old) })
	}
	document, err := json.Marshal(object)
	if err != nil {
		return err
	}
	info, err := fill(whole, toYAML(document), false)
	if err == nil {
		next := left{identify(info.Sys().(*syscall.Stat_t)), version(object)}
		err = t.swap(key, last, next, func(path string, old identity) error { return exchange(whole, path, old, next.identity) })
	}
	if err != nil {
		return errors.Join(err, ignoreGone(os.Remove(whole))) // what is left of it would fill the disk
	}
	return nil
}

// swap replaces a manifest, and keeps what it is from then on. Where the next records of the object do not
// say it the journal has a note of it, from before and from after: a process that is killed in between
// leaves the one or the other.
func (t *Table) swap(key Key, last bool, next left, replace func(path string, old identity) error) error {
	t.disk.Lock()
	defer t.disk.Unlock()
	path, this, j := t.path(key), item{t.name, key}, t.store.journal
	note := func(m left) error { return j.note(this, m, t.store.revision.current()) }
	found := lstat(path)
	if !t.taking && found != t.files[key].identity {
		if !t.isRefused(path) && !last {
			return errEdited
		}
		if err := note(left{}); err != nil {
			return err
		}
		if err := t.setAside(path); err != nil {
			return err
		}
		t.keep(key, left{})
		found = identity{}
	}
	if !j.isPending(this) {
		note = func(left) error { return nil }
	}
	if err := note(next); err != nil {
		return err
	}
	if err := replace(path, found); err != nil {
		return errors.Join(err, note(t.files[key]))
	}
	t.keep(key, next)
	return note(next)
}

// compare returns the manifest as it is, and whether it is as the store left it: that of an object that
// was written, or none where none was.
func (t *Table) compare(key Key) (found identity, ours bool) {
	t.disk.Lock()
	defer t.disk.Unlock()
	found = lstat(t.path(key))
	return found, found == t.files[key].identity
}

// keep is called with the lock of the manifests held.
func (t *Table) keep(key Key, manifest left) {
	if manifest.identity == (identity{}) {
		delete(t.files, key)
	} else {
		t.files[key] = manifest
	}
}

// adopt makes a manifest that was admitted the store's, unless it has changed since.
func (t *Table) adopt(key Key, admitted identity) {
	t.disk.Lock()
	defer t.disk.Unlock()
	if now := lstat(t.path(key)); now == admitted {
		t.keep(key, left{now, t.files[key].revision})
	}
}

func lstat(path string) identity {
	var s syscall.Stat_t
	err := syscall.Lstat(path, &s)
	for errors.Is(err, syscall.EINTR) {
		err = syscall.Lstat(path, &s)
	}
	if err != nil {
		return identity{}
	}
	return identify(&s)
}

func identify(s *syscall.Stat_t) identity { return identity{s.Ino, s.Mtim.Nano(), s.Size} }
