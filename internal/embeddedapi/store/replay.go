package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// replay brings what the journal has to the tables, and returns the highest revision. It is called after the
// manifests were loaded. What cannot be read is kept.
func (s *Store) replay() (highest uint64, err error) {
	j, records, damaged, err := openJournal(s.cfg.Data, s.cfg.Sync)
	if err != nil {
		return 0, err
	}
	s.journal = j
	slices.SortStableFunc(records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.revision, b.revision), cmp.Compare(a.kind, b.kind))
	})
	of := map[item][]record{}
	for _, r := range records {
		highest = max(highest, r.revision)
		of[r.item] = append(of[r.item], r)
	}
	faults := map[item]error{}
	for i, records := range of {
		fault := errNotOnDisk
		if t := s.tables[i.resource]; t != nil && t.isFile(i.Key) {
			fault = t.replay(i, records)
		}
		if fault != nil {
			faults[i] = fault
		}
	}
	return highest, s.keepUnread(damaged, records, faults)
}

var errNotOnDisk = errors.New("this version does not keep it on disk")

// keepUnread keeps the bytes of the journal that are no record, and the records of objects with a fault.
func (s *Store) keepUnread(damaged []byte, records []record, faults map[item]error) error {
	if len(bytes.Trim(damaged, "\x00")) == 0 {
		damaged = nil // the end of a file that a power failure has left
	}
	var unread []byte
	for _, r := range records {
		if faults[r.item] != nil {
			unread = append(unread, r.encode()...)
		}
	}
	if unread = append(unread, damaged...); len(unread) == 0 { // records first: behind damage they might not be read
		return nil
	}
	file, err := s.journal.keep(unread)
	if err != nil {
		return fmt.Errorf("keep what cannot be read: %w", err)
	}
	if len(damaged) > 0 {
		s.cfg.Log.Error("the journal is damaged, or its end is torn and was not acknowledged; the bytes are kept", "file", file, "bytes", len(damaged))
	}
	for i, fault := range faults {
		s.cfg.Log.Error("a change in the journal cannot be read; it is kept, and the manifest of its object stays", "file", file, "resource", i.resource, "object", i.Key.String(), "error", fault)
	}
	return nil
}

// replay gives an object the state of its last change, unless its manifest is as new.
func (t *Table) replay(i item, records []record) error {
	changes := slices.DeleteFunc(slices.Clone(records), func(r record) bool { return r.kind == kindNoted })
	if len(changes) == 0 {
		return nil
	}
	last, newest := changes[len(changes)-1], records[len(records)-1]
	found := version(t.objects[i.Key])
	if found >= last.revision {
		return nil
	}
	var object Object
	var err error
	if last.kind == kindPut {
		if object, err = t.store.cfg.Restore(t.name, last.object); err != nil {
			return err
		}
	}
	now := lstat(t.path(i.Key))
	is := func(m left) bool { return m.modified == now.modified && m.size == now.size }
	manifest := newest.manifest
	if before := records[max(0, len(records)-2)].manifest; newest.kind == kindNoted && !is(manifest) && is(before) {
		manifest = before // the noted one has not taken its place
	}
	manifest.inode = now.inode
	wasRemoved := slices.ContainsFunc(changes, func(r record) bool { return r.kind == kindRemoved })
	if found > manifest.revision || now == (identity{}) && wasRemoved {
		manifest = left{now, found} // written after the last record
	}
	t.keep(i.Key, manifest)
	delete(t.objects, i.Key)
	if object != nil {
		t.objects[i.Key] = object
	}
	t.store.journal.pending[i] = pending{object: object}
	return nil
}

// version is the revision of a loaded object, 0 where there is none.
func version(o Object) uint64 {
	if o == nil {
		return 0
	}
	n, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64) // was parsed by load
	return n
}
