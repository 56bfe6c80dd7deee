package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	fileName = "journal"
	// damagedName is the name of a damaged journal.
	damagedName = "journal.damaged"
	// maxEntries bounds the map: a new entry replaces the oldest one.
	maxEntries = 1024
	// maxEntryBytes bounds an entry.
	maxEntryBytes = 64 << 10
	// compactBytes is the size at which the file is rewritten, and preallocatedBytes
	// the size preallocated for it, so that it can grow on a full disk.
	compactBytes      = 1 << 20
	preallocatedBytes = 2 << 20
	// maxBytes is larger than any journal.
	maxBytes = 2 * maxEntries * maxEntryBytes
	// retryInterval is the interval of attempts after a write error.
	retryInterval = 10 * time.Second
	// writable is W_OK|X_OK of access(2).
	writable = 2
	// keepSize is FALLOC_FL_KEEP_SIZE: fallocate(2) allocates blocks behind the end.
	keepSize = 1
)

// Entry is one value of the map.
type Entry struct {
	Kind string          `json:"kind"`
	ID   string          `json:"id"`
	Data json.RawMessage `json:"data,omitempty"`
}

type key struct{ kind, id string }

// Journal is the map. Put, Drop and Entries may be called from any goroutine and never
// wait for the disk; changes are durable soon after.
type Journal struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	entries map[key]kept
	next    uint64
	pending []line
	omitted bool   // changes were removed from pending; only the map has them
	changes uint64 // so far
	durable uint64 // of them
	written []func(changes uint64)
	wake    chan struct{}

	file  *os.File // owned by Run; nil before the first write
	size  int64
	whole bool // the file ends with a complete line, so that lines can be appended
}

type kept struct {
	data json.RawMessage
	at   uint64 // order of insertion
}

// Open reads the journal in a directory, which it creates. A damaged or foreign journal
// is renamed, and its readable entries are kept. Run does all writes: a full or hanging
// disk does not block the start.
func Open(dir string, log *slog.Logger) (*Journal, error) {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		if err = syscall.Access(dir, writable); err != nil {
			err = fmt.Errorf("write to %s: %w", dir, err)
		}
	}
	if err != nil && !isDiskError(err) {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{path: filepath.Join(dir, fileName), log: log, entries: map[key]kept{}, wake: make(chan struct{}, 1), size: compactBytes + 1}
	data, err := j.read()
	if isDiskError(err) {
		log.Error("cannot read the journal: its entries are lost", "journal", j.path, "error", err)
	} else if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j.whole = data != nil
	good := 0
	for text, whole := range split(data) {
		l, err := parse(text, whole)
		if err != nil {
			log.Warn("the journal is damaged: it is renamed, entries before the damage are kept",
				"journal", j.path, "aside", filepath.Join(dir, damagedName), "bytes", len(data), "good", good, "error", err)
			if err := setJournalAside(j.path, filepath.Join(dir, damagedName)); err != nil {
				log.Error("cannot rename the damaged journal: it will be overwritten", "error", err)
			}
			j.whole = false
			break
		}
		good += len(text) + 1
		j.apply(l)
	}
	j.scheduleRetry()
	return j, nil
}

// isDiskError says whether an error is of the disk, and may be temporary, and not of
// the configuration.
func isDiskError(err error) bool {
	return slices.ContainsFunc([]error{syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT, syscall.EIO}, func(fault error) bool { return errors.Is(err, fault) })
}

// read reads the file; nil where there is none. A file that cannot be a journal is
// renamed.
func (j *Journal) read() ([]byte, error) {
	info, err := os.Lstat(j.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Mode().IsRegular() && info.Size() <= maxBytes:
		return os.ReadFile(j.path)
	}
	aside := filepath.Join(filepath.Dir(j.path), damagedName)
	j.log.Warn("the file is not a journal: it is renamed", "journal", j.path, "aside", aside, "mode", info.Mode().String(), "bytes", info.Size())
	if err := os.Rename(j.path, aside); err != nil {
		j.log.Error("cannot rename it", "error", err)
	}
	return nil, nil
}

// setJournalAside links the file under a second name, which remains after the file is
// replaced. That needs no space on a full disk.
func setJournalAside(path, aside string) error {
	if err := os.Remove(aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Link(path, aside)
}

// Entries are the entries of a kind, in the order of insertion.
func (j *Journal) Entries(kind string) []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var entries []Entry
	for _, e := range j.sorted() {
		if e.Kind == kind {
			entries = append(entries, e)
		}
	}
	return entries
}

// sorted is called with the lock held.
func (j *Journal) sorted() []Entry {
	keys := make([]key, 0, len(j.entries))
	for k := range j.entries {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Compare(j.entries[a].at, j.entries[b].at) })
	entries := make([]Entry, len(keys))
	for i, k := range keys {
		entries[i] = Entry{k.kind, k.id, j.entries[k].data}
	}
	return entries
}

// Put sets an entry.
func (j *Journal) Put(kind, id string, value any) error {
	data, err := json.Marshal(value)
	if err == nil && len(data) > maxEntryBytes {
		err = fmt.Errorf("%d bytes are more than %d", len(data), maxEntryBytes)
	}
	if err != nil {
		return fmt.Errorf("journal %s %s: %w", kind, id, err)
	}
	j.change(line{Entry: Entry{kind, id, data}})
	return nil
}

// Drop deletes an entry.
func (j *Journal) Drop(kind, id string) {
	j.change(line{Entry: Entry{Kind: kind, ID: id}, Dropped: true})
}

func (j *Journal) change(l line) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.apply(l)
	j.changes++
	j.pending = append(j.pending, l)
	if len(j.pending) > 2*maxEntries { // the disk hangs
		j.pending, j.omitted = nil, true
	}
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Changes counts those by Put and Drop so far.
func (j *Journal) Changes() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.changes
}

// Durable is how many of the changes are in the file.
func (j *Journal) Durable() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.durable
}

// Written has Run call a function, too, on its goroutine, with how many of the changes are durable.
func (j *Journal) Written(f func(changes uint64)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.written = append(j.written, f)
}

// apply is called with the lock held, or before other goroutines use the journal.
func (j *Journal) apply(l line) {
	k := key{l.Kind, l.ID}
	if l.Dropped {
		delete(j.entries, k)
		return
	}
	at := j.next
	if before, known := j.entries[k]; known {
		at = before.at
	} else {
		j.next++
	}
	j.entries[k] = kept{l.Data, at}
	if len(j.entries) > maxEntries {
		oldest := j.sorted()[0]
		delete(j.entries, key{oldest.Kind, oldest.ID})
		j.log.Warn("the journal is full: its oldest entry is deleted", "kind", oldest.Kind, "id", oldest.ID)
	}
}

// Run writes the changes until ctx ends, and then the rest. It repeats a failed write.
func (j *Journal) Run(ctx context.Context) error {
	defer func() {
		_ = j.file.Close() // it is synced
		j.file = nil
	}()
	broken := false
	for {
		select {
		case <-j.wake:
		case <-ctx.Done():
			return j.flush()
		}
		err := j.flush()
		if err != nil && !broken {
			j.log.Error("cannot write the journal: a crash now would lose its changes", "error", err)
		} else if err == nil && broken {
			j.log.Info("the journal can be written again")
		}
		broken = err != nil
		if broken {
			select {
			case <-time.After(retryInterval):
				j.scheduleRetry()
			case <-ctx.Done():
			}
		}
	}
}

// scheduleRetry schedules another attempt.
func (j *Journal) scheduleRetry() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// flush makes pending changes durable.
func (j *Journal) flush() error {
	j.mu.Lock()
	pending, omitted, changes, written := j.pending, j.omitted, j.changes, j.written
	j.pending, j.omitted = nil, false
	j.mu.Unlock()
	if omitted {
		j.size, j.whole = compactBytes+1, false
	}
	if err := j.save(pending); err != nil {
		return err
	}
	for _, f := range written {
		f(changes)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.durable = changes
	return nil
}

// save writes changes. After a failure the next attempt writes the whole map, as half a line
// may have been written.
func (j *Journal) save(pending []line) error {
	if j.size > compactBytes {
		// A full disk has no space for another file, but this one is preallocated.
		if err := j.compact(); err == nil || !j.whole {
			return err
		}
	}
	var text []byte
	for _, l := range pending {
		text = l.append(text)
	}
	if len(text) == 0 {
		return nil
	}
	err := j.write(text)
	if err != nil {
		j.size, j.whole = compactBytes+1, false
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

func (j *Journal) write(text []byte) (err error) {
	if j.file == nil {
		if j.file, err = os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0); err != nil {
			return err
		}
	}
	n, err := j.file.Write(text)
	j.size += int64(n)
	if err == nil {
		err = j.file.Sync()
	}
	return err
}

// compact writes the map to a new file and renames it over the old one.
func (j *Journal) compact() error {
	j.mu.Lock()
	entries := j.sorted()
	j.mu.Unlock()
	var text []byte
	for _, e := range entries {
		text = line{Entry: e}.append(text)
	}
	dir, draft := filepath.Dir(j.path), j.path+".new"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(draft, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	// Not every filesystem supports it, and a full one has no space.
	_ = syscall.Fallocate(int(file.Fd()), keepSize, 0, preallocatedBytes)
	if _, err = file.Write(text); err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = os.Rename(draft, j.path)
	}
	if err != nil {
		return errors.Join(err, file.Close(), os.Remove(draft))
	}
	if j.file != nil {
		_ = j.file.Close() // replaced
	}
	j.file, j.size, j.whole = file, int64(len(text)), true
	return syncDir(dir)
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
