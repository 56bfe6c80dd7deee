package store

import (
	"cmp"
	"slices"
	"strconv"
)

// replay brings what the journal has to the tables, writes the manifests that are older, and returns
// the highest revision. It is called after the manifests were loaded.
func (s *Store) replay() (highest uint64, err error) {
	j, records, torn, err := openJournal(s.cfg.Data, s.cfg.Sync)
	if err != nil {
		return 0, err
	}
	s.journal = j
	if torn > 0 {
		s.cfg.Log.Warn("the end of the journal is torn; it was not acknowledged", "bytes", torn)
	}
	slices.SortStableFunc(records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.revision, b.revision), cmp.Compare(a.kind, b.kind))
	})
	of := map[item][]record{}
	for _, r := range records {
		highest = max(highest, r.revision)
		of[r.item] = append(of[r.item], r)
	}
	for i, records := range of {
		t := s.tables[i.resource]
		if t == nil || !t.isFile(i.Key) {
			s.cfg.Log.Error("the journal has an object that this version does not keep on disk", "resource", i.resource, "object", i.Key.String())
			continue
		}
		if err := t.replay(i, records); err != nil {
			s.cfg.Log.Error("a change in the journal cannot be read", "resource", i.resource, "object", i.Key.String(), "error", err)
		}
	}
	return highest, nil
}

// replay gives an object the state of its last change, unless its manifest is as new.
func (t *Table) replay(i item, records []record) error {
	changes := slices.DeleteFunc(slices.Clone(records), func(r record) bool { return r.kind == kindNoted })
	if len(changes) == 0 {
		return nil
	}
	last, manifest := changes[len(changes)-1], records[len(records)-1].manifest
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
