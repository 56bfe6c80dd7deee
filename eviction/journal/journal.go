// Package journal keeps what must survive a crash: a small durable map of
// entries, by kind and id. It is written behind the backs of those who change
// it: nobody waits for the disk. It knows nothing of what the entries mean.
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
	// damagedName is what a journal that cannot be read whole is kept as.
	damagedName = "journal.damaged"
	// maxEntries bounds the map: the oldest entry goes for the newest.
	maxEntries = 1024
	// maxEntryBytes bounds an entry.
	maxEntryBytes = 64 << 10
	// compactBytes is how long the file may grow before it is written anew.
	compactBytes = 1 << 20
	// retryAfter is how long the journal waits for a disk that refuses.
	retryAfter = 10 * time.Second
	// writable asks access(2) whether a directory can be written to.
	writable = 2
)

// Entry is one thing that is remembered.
type Entry struct {
	Kind string          `json:"kind"`
	ID   string          `json:"id"`
	Data json.RawMessage `json:"data,omitempty"`
}

type key struct{ kind, id string }

// Journal is the map. Put, Drop and Entries may be called from any goroutine and
// never wait for the disk; what they change is durable soon after.
type Journal struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	entries map[key]kept
	next    uint64
	pending []line
	wake    chan struct{}

	file *os.File // of Run; nil before the first writing
	size int64
}

type kept struct {
	data json.RawMessage
	at   uint64 // order of arrival
}

// Open reads the journal in a directory, which it makes where there is none. A
// journal that is torn or foreign is set aside, and what could be read of it is
// kept. What has to be written is left to Run: a disk that is full or hangs keeps
// nobody from starting.
func Open(dir string, log *slog.Logger) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := syscall.Access(dir, writable); err != nil {
		return nil, fmt.Errorf("open journal: write to %s: %w", dir, err)
	}
	j := &Journal{path: filepath.Join(dir, fileName), log: log, entries: map[key]kept{}, wake: make(chan struct{}, 1), size: compactBytes + 1}
	data, err := os.ReadFile(j.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	good := 0
	for text, whole := range split(data) {
		l, err := parse(text, whole)
		if err != nil {
			log.Warn("the journal is damaged: it is set aside, what came before the damage is kept",
				"journal", j.path, "aside", filepath.Join(dir, damagedName), "bytes", len(data), "good", good, "error", err)
			if err := setJournalAside(j.path, filepath.Join(dir, damagedName)); err != nil {
				log.Error("the damaged journal will be lost", "error", err)
			}
			break
		}
		good += len(text) + 1
		j.apply(l)
	}
	j.again()
	return j, nil
}

// setJournalAside gives the file a second name, which it keeps when another takes
// its place. A full disk has room for that.
func setJournalAside(path, aside string) error {
	if err := os.Remove(aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Link(path, aside)
}

// Entries are those of a kind, in the order in which they came.
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

// Put remembers a value, or replaces it.
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

// Drop forgets an entry.
func (j *Journal) Drop(kind, id string) {
	j.change(line{Entry: Entry{Kind: kind, ID: id}, Dropped: true})
}

func (j *Journal) change(l line) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.apply(l)
	j.pending = append(j.pending, l)
	if len(j.pending) > 2*maxEntries { // the disk stalls: what counts is in the map
		j.pending = nil
		for _, e := range j.sorted() {
			j.pending = append(j.pending, line{Entry: e})
		}
	}
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// apply is called with the lock held, or before there is anybody else.
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
		j.log.Warn("the journal is full: its oldest entry is forgotten", "kind", oldest.Kind, "id", oldest.ID)
	}
}

// Run writes what was changed until ctx ends, and then the rest. A disk that
// refuses is tried again; meanwhile the map holds what counts.
func (j *Journal) Run(ctx context.Context) error {
	defer func() { _ = j.file.Close() }() // what counts is synced
	broken := false
	for {
		select {
		case <-j.wake:
		case <-ctx.Done():
			return j.flush()
		}
		err := j.flush()
		if err != nil && !broken {
			j.log.Error("the journal cannot be written: a crash now would lose it", "error", err)
		} else if err == nil && broken {
			j.log.Info("the journal can be written again")
		}
		broken = err != nil
		if broken {
			select {
			case <-time.After(retryAfter):
				j.again()
			case <-ctx.Done():
			}
		}
	}
}

// again makes sure of another attempt.
func (j *Journal) again() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// flush makes durable what is pending. Where that fails, the next attempt writes
// the whole map anew, for half a line may have been written.
func (j *Journal) flush() error {
	j.mu.Lock()
	pending := j.pending
	j.pending = nil
	j.mu.Unlock()
	if j.size > compactBytes {
		return j.compact()
	}
	var text []byte
	for _, l := range pending {
		text = l.append(text)
	}
	if len(text) == 0 {
		return nil
	}
	n, err := j.file.Write(text)
	j.size += int64(n)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		j.size = compactBytes + 1
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// compact writes the map to a new file and puts it in the place of the old one.
func (j *Journal) compact() (err error) {
	j.mu.Lock()
	entries := j.sorted()
	j.mu.Unlock()
	var text []byte
	for _, e := range entries {
		text = line{Entry: e}.append(text)
	}
	draft := j.path + ".new"
	file, err := os.OpenFile(draft, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err = file.Write(text); err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = os.Rename(draft, j.path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(j.path))
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if j.file != nil {
		_ = j.file.Close() // replaced
	}
	j.file, j.size = file, int64(len(text))
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
