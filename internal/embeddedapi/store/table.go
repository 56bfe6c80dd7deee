package store

import (
	"cmp"
	"fmt"
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

	writing sync.Mutex // held during a change, so that records and revisions have the same order

	disk  sync.Mutex   // held while a manifest is compared and replaced
	files map[Key]left // the manifests as the store left them

	mu       sync.RWMutex
	objects  map[Key]Object
	revision uint64 // of the latest change, or of the start
	history  history
}

// isFile says that an object has a manifest.
func (t *Table) isFile(key Key) bool {
	return t.onDisk && (t.store.cfg.Volatile == nil || !t.store.cfg.Volatile(t.name, key))
}

func newTable(s *Store, name string, onDisk bool) *Table {
	return &Table{state: &state{store: s, name: name, onDisk: onDisk, files: map[Key]left{}, objects: map[Key]Object{}, history: newHistory()}}
}

// Get returns the object, nil where there is none.
func (t *Table) Get(key Key) Object {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.objects[key]
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
	for key, o := range t.objects {
		if namespace == "" || key.Namespace == namespace {
			objects = append(objects, o)
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
// version. The error is ErrChanged where old is not the stored one. After an error of a sync the
// object may be stored.
func (t *Table) Put(old, object Object) error {
	change := &Change{Type: watch.Added, New: object, Old: old}
	if old != nil {
		change.Type = watch.Modified
	}
	return t.change(KeyOf(object), change)
}

// Remove removes old and returns its last state, with the resource version of its
// removal. The error is ErrChanged where old is not the stored one.
func (t *Table) Remove(old Object) (Object, error) {
	last := old.DeepCopyObject().(Object)
	return last, t.change(KeyOf(old), &Change{Type: watch.Deleted, Old: old, New: last})
}

// change makes a change after it is in the journal, and returns when it is as durable as it is to be.
func (t *Table) change(key Key, change *Change) error {
	record, err := t.make(key, change)
	if err != nil {
		return err
	}
	return t.store.journal.commit(record)
}

func (t *Table) make(key Key, change *Change) (record uint64, err error) {
	t.lock(key)
	defer t.writing.Unlock()
	if t.Get(key) != change.Old {
		return 0, ErrChanged
	}
	if change.Revision, err = t.store.revision.next(); err != nil {
		return 0, err
	}
	change.New.SetResourceVersion(strconv.FormatUint(change.Revision, 10))
	if t.isFile(key) {
		if record, err = t.record(key, change); err != nil {
			return 0, fmt.Errorf("store %s %s: %w", t.name, key, err)
		}
	}
	change.size = sizeOf(change)
	t.apply(key, change)
	return record, nil
}

// sizeOf is how many bytes the object of a change has: in the journal, or as protobuf.
func sizeOf(change *Change) int {
	if change.object != nil {
		return len(change.object)
	}
	if sized, is := change.New.(interface{ Size() int }); is {
		return sized.Size()
	}
	return 0
}

func (t *Table) apply(key Key, change *Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if change.Type == watch.Deleted {
		delete(t.objects, key)
	} else {
		t.objects[key] = change.New
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
