package store

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// Table holds the objects of one resource.
type Table struct {
	*state
	taking bool // its changes are those of a manifest that is being admitted
}

// Taking is the table as the admission of a manifest changes it: its changes do not wait for the
// edits of manifests.
func (t *Table) Taking() *Table { return &Table{t.state, true} }

type state struct {
	store  *Store
	name   string
	onDisk bool

	writing sync.Mutex // held during a change, so that files and revisions have the same order

	mu       sync.RWMutex
	objects  map[Key]entry
	revision uint64 // of the latest change, or of the start
	history  history
}

type entry struct {
	object Object
	file   os.FileInfo // the manifest as it was written; nil in memory
}

// isFile says that an object has a manifest.
func (t *Table) isFile(key Key) bool {
	return t.onDisk && (t.store.cfg.Volatile == nil || !t.store.cfg.Volatile(t.name, key))
}

func newTable(s *Store, name string, onDisk bool) *Table {
	return &Table{state: &state{store: s, name: name, onDisk: onDisk, objects: map[Key]entry{}, history: newHistory()}}
}

// Get returns the object, nil where there is none.
func (t *Table) Get(key Key) Object {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.objects[key].object
}

// List returns the objects of a namespace, of all where it is empty, in the order of their keys, and the revision up to which they are complete.
func (t *Table) List(namespace string) ([]Object, uint64) {
	t.mu.RLock()
	objects, revision := t.within(namespace)
	t.mu.RUnlock()
	slices.SortFunc(objects, func(a, b Object) int { return KeyOf(a).Compare(KeyOf(b)) })
	return objects, revision
}

// within is called under the lock.
func (t *Table) within(namespace string) ([]Object, uint64) {
	objects := make([]Object, 0, len(t.objects))
	for key, e := range t.objects {
		if namespace == "" || key.Namespace == namespace {
			objects = append(objects, e.object)
		}
	}
	return objects, t.revision
}

// Revision is that of the table's latest change.
func (t *Table) Revision() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.revision
}

// Latest is the store's latest revision, up to which the objects that are listed next are complete.
func (t *Table) Latest() uint64 {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.store.revision.current()
}

// Put stores an object in place of old, nil for a new one, and sets its resource
// version. The error is ErrChanged where old is not the stored one.
func (t *Table) Put(old, object Object) error {
	key := KeyOf(object)
	if err := t.lock(key); err != nil {
		return err
	}
	defer t.writing.Unlock()
	if t.Get(key) != old {
		return ErrChanged
	}
	revision, err := t.store.revision.next()
	if err != nil {
		return err
	}
	object.SetResourceVersion(strconv.FormatUint(revision, 10))
	e := entry{object: object}
	if t.isFile(key) {
		if e.file, err = t.write(key, object); err != nil {
			return fmt.Errorf("write the manifest of %s %s: %w", t.name, key, err)
		}
	}
	change := &Change{Type: watch.Added, New: object, Old: old, Revision: revision}
	if old != nil {
		change.Type = watch.Modified
	}
	t.apply(key, e, change)
	return nil
}

// Remove removes old and returns its last state, with the resource version of its
// removal. The error is ErrChanged where old is not the stored one.
func (t *Table) Remove(old Object) (Object, error) {
	key := KeyOf(old)
	if err := t.lock(key); err != nil {
		return nil, err
	}
	defer t.writing.Unlock()
	if t.Get(key) != old {
		return nil, ErrChanged
	}
	revision, err := t.store.revision.next()
	if err != nil {
		return nil, err
	}
	if t.isFile(key) {
		if err := t.unlink(key); err != nil {
			return nil, fmt.Errorf("remove the manifest of %s %s: %w", t.name, key, err)
		}
	}
	last := old.DeepCopyObject().(Object)
	last.SetResourceVersion(strconv.FormatUint(revision, 10))
	t.apply(key, entry{}, &Change{Type: watch.Deleted, Old: old, New: last, Revision: revision})
	return last, nil
}

func (t *Table) apply(key Key, e entry, change *Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.object == nil {
		delete(t.objects, key)
	} else {
		t.objects[key] = e
	}
	t.revision = change.Revision
	t.history.add(change)
}

// Compare orders keys as kube-apiserver does, by namespace/name.
func (k Key) Compare(other Key) int {
	if k.Namespace == other.Namespace {
		return cmp.Compare(k.Name, other.Name)
	}
	return cmp.Compare(k.Namespace+"/", other.Namespace+"/")
}

// String is namespace/name, or the name alone.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Holds says whether a namespace has objects.
func (t *Table) Holds(namespace string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for key := range t.objects {
		if key.Namespace == namespace {
			return true
		}
	}
	return false
}
