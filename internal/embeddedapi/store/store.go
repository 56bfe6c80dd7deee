// Package store keeps objects by resource, namespace and name, numbers their changes
// and serves watches. A table on disk is a YAML manifest an object,
// DATA/<resource>/[<namespace>/]<name>.yaml, written soon after a change, which is in a journal
// before it is acknowledged.
// The package does not interpret kinds and does not serve requests.
package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	// ErrChanged says that the object was changed since it was read.
	ErrChanged = errors.New("the object has been changed")
	// ErrExpired says that the requested changes are no longer kept.
	ErrExpired = errors.New("the changes are no longer known")
)

// Object is a stored object. It is immutable.
type Object interface {
	metav1.Object
	runtime.Object
}

// Key is an object's place in its table; Namespace is empty where there is none.
type Key struct{ Namespace, Name string }

// KeyOf is the key of an object.
func KeyOf(o metav1.Object) Key { return Key{o.GetNamespace(), o.GetName()} }

// Config says where objects are kept.
type Config struct {
	Data string // directory; made where it does not exist
	Sync bool   // a change is on the disk, not only with the kernel, before it is acknowledged
	// Decode decodes a manifest in a table's directory. It sets the key where the
	// manifest leaves it out.
	Decode func(resource string, key Key, manifest []byte) (Object, error)
	// Encode encodes an object for the journal, and Restore decodes what Encode has made.
	Encode  func(Object) ([]byte, error)
	Restore func(resource string, encoded []byte) (Object, error)
	// Volatile says that an object of a table on disk is kept in memory only.
	Volatile func(resource string, key Key) bool
	Log      *slog.Logger
}

// Store is a set of tables that share one sequence of revisions.
type Store struct {
	cfg      Config
	lock     *os.File
	journal  *journal
	rounds   sync.Mutex // held while pending manifests are written
	revision *revisions
	onDisk   []string // in the order in which manifests are admitted
	tables   map[string]*Table
	follower *Follower // nil before Follow
}

// Open reads the manifests of the tables named by onDisk and what the journal has of them, and
// makes empty tables for those of inMemory. It loads manifests that a store has written; Follow handles the
// others, in the order of onDisk.
func Open(cfg Config, onDisk, inMemory []string) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(cfg.Data, scratch), 0o750); err != nil {
		return nil, err
	}
	lock, err := own(cfg.Data)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, lock: lock, onDisk: onDisk, tables: map[string]*Table{}}
	var highest uint64
	for _, name := range onDisk {
		t := newTable(s, name, true)
		s.tables[name] = t
		if err := os.MkdirAll(t.dir(""), 0o750); err != nil {
			return nil, err
		}
		found, err := t.load()
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", name, err)
		}
		highest = max(highest, found)
	}
	replayed, err := s.replay()
	if err != nil {
		return nil, fmt.Errorf("replay the journal: %w", err)
	}
	highest = max(highest, replayed)
	for _, name := range inMemory {
		s.tables[name] = newTable(s, name, false)
	}
	if s.revision, err = reserve(cfg.Data, highest, cfg.Log); err != nil {
		return nil, err
	}
	for _, t := range s.tables {
		t.revision = s.revision.last
	}
	if _, err := s.flush(); err != nil {
		cfg.Log.Error("manifests cannot be written; changes are in the journal", "error", err)
	}
	return s, nil
}

// own locks the directory for this process.
func own(data string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(data, lockFile), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is in use by another process, end that one or give another directory: %w", data, err), lock.Close())
	}
	return lock, nil
}

// Close writes all manifests, empties the journal and unlocks the directory. The store must not be
// changed after it. What cannot be written stays in the journal, and is the error.
func (s *Store) Close() error {
	done, err := s.flush()
	if err != nil {
		err = fmt.Errorf("write manifests, changes remain in the journal: %w", err)
	} else if !done {
		s.cfg.Log.Warn("manifests were edited before they were written; changes remain in the journal, and the next start admits the edits")
	}
	return errors.Join(err, s.journal.close(), s.lock.Close())
}

// Table returns the objects of a resource named to Open.
func (s *Store) Table(resource string) *Table { return s.tables[resource] }

// Revision is the number of the latest change to any table.
func (s *Store) Revision() uint64 { return s.revision.current() }
