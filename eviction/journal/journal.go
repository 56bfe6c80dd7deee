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
	// compactBytes is how long the file may grow before it is written anew, and
	// asideBytes what is set aside for it: on a full disk it grows on in that.
	compactBytes = 1 << 20
	asideBytes   = 2 << 20
	// maxBytes is more than a journal ever has.
	maxBytes = 2 * maxEntries * maxEntryBytes
	// retryAfter is how long the journal waits for a disk that refuses.
	retryAfter = 10 * time.Second
	// writable asks access(2) whether a directory can be written to.
	writable = 2
	// keepSize has fallocate(2) set blocks aside behind the end (FALLOC_FL_KEEP_SIZE).
	keepSize = 1
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

	file  *os.File // of Run; nil before the first writing
	size  int64
	whole bool // the file ends with a whole line, so that more may follow
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
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		if err = syscall.Access(dir, writable); err != nil {
			err = fmt.Errorf("write to %s: %w", dir, err)
		}
	}
	if err != nil && !refuses(err) {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{path: filepath.Join(dir, fileName), log: log, entries: map[key]kept{}, wake: make(chan struct{}, 1), size: compactBytes + 1}
	data, err := j.read()
	if refuses(err) {
		log.Error("the journal cannot be read: what it remembers is lost", "journal", j.path, "error", err)
	} else if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j.whole = data != nil
	good := 0
	for text, whole := range split(data) {
		l, err := parse(text, whole)
		if err != nil {
			log.Warn("the journal is damaged: it is set aside, what came before the damage is kept",
				"journal", j.path, "aside", filepath.Join(dir, damagedName), "bytes", len(data), "good", good, "error", err)
			if err := setJournalAside(j.path, filepath.Join(dir, damagedName)); err != nil {
				log.Error("the damaged journal will be lost", "error", err)
			}
			j.whole = false
			break
		}
		good += len(text) + 1
		j.apply(l)
	}
	j.again()
	return j, nil
}

// refuses says whether an error is the disk's, for which no setting is to blame and
// which may pass.
func refuses(err error) bool {
	return slices.ContainsFunc([]error{syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT, syscall.EIO}, func(fault error) bool { return errors.Is(err, fault) })
}

// read reads the file; nil where there is none. What cannot be a journal gives way.
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
	j.log.Warn("the journal is no journal: it is set aside", "journal", j.path, "aside", aside, "mode", info.Mode().String(), "bytes", info.Size())
	if err := os.Rename(j.path, aside); err != nil {
		j.log.Error("it stays in the way", "error", err)
	}
	return nil, nil
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
	defer func() {
		_ = j.file.Close() // what counts is synced
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
		// A full disk has no room for another file, but for more of this one.
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

// compact writes the map to a new file and puts it in the place of the old one.
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
	// Not every filesystem can, and a full one has nothing to set aside.
	_ = syscall.Fallocate(int(file.Fd()), keepSize, 0, asideBytes)
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
