package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/evictd/evictd/internal/osprocess"
)

const (
	journalDir = ".journal"
	maxJournal = 16 << 20 // bytes of each of its files
	// A manifest takes at most so many times the bytes of its record, and a block and an inode.
	manifestGrowth, manifestLeast = 4, 8 << 10
)

// errNoRoom says that a record is to wait until the manifests of those before it are written.
var errNoRoom = errors.New("the journal has no room")

// journal keeps every change until its manifest is written. It has two files that are used in
// turn: while manifests are written, changes are added to the other file. The files are empty
// when all manifests are written.
type journal struct {
	dir  string
	sync bool
	more chan struct{} // has an element after a record

	mu      sync.Mutex
	files   [2]*os.File
	sizes   [2]int64
	current int
	room    int64  // bytes of the disk that manifests not yet written, and their records, may take
	added   uint64 // records
	pending map[item]pending

	syncing sync.Mutex // held by the goroutine that syncs for all that wait
	synced  uint64     // records on the disk
	failed  error      // of a sync: what is on the disk is unknown from then on
}

// item is an object of a table on disk.
type item struct {
	resource string
	Key
}

// pending is the latest state of an object whose manifest is to be written.
type pending struct {
	object Object // nil where it was removed
	tries  int    // that found the manifest edited
}

// openJournal returns the records of a journal, those of both files, and the bytes that are none.
func openJournal(data string, sync bool) (j *journal, found []record, unread []byte, err error) {
	j = &journal{dir: filepath.Join(data, journalDir), sync: sync, more: make(chan struct{}, 1), pending: map[item]pending{}}
	if err := os.MkdirAll(j.dir, 0o750); err != nil {
		return nil, nil, nil, err
	}
	for i := range j.files {
		path := filepath.Join(j.dir, fmt.Sprint(i))
		if j.files[i], err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o640); err != nil {
			return nil, nil, nil, errors.Join(err, j.close())
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, nil, errors.Join(err, j.close())
		}
		records, rest, end := readRecords(text)
		found, unread = append(found, records...), append(unread, rest...)
		j.sizes[i] = int64(end)
	}
	if sync {
		err = errors.Join(syncDir(j.dir), syncDir(data))
	}
	j.measure()
	return j, found, unread, err
}

func (j *journal) close() (err error) {
	for _, f := range j.files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// keep writes what cannot be read to a file of its own, and cuts off what is no record: behind records that are added
// later, a part of it might be read as one. The same bytes have the same file.
func (j *journal) keep(unread []byte) (path string, err error) {
	path = filepath.Join(j.dir, fmt.Sprintf("unread-%08x", crc32.Checksum(unread, castagnoli)))
	_, err = fill(path, unread, true)
	if err = errors.Join(err, syncDir(j.dir)); err != nil {
		return path, err
	}
	for i, f := range j.files {
		err = errors.Join(err, f.Truncate(j.sizes[i]))
	}
	return path, err
}

// add writes the record of a change and makes the object pending, nil where it was removed. It
// returns what commit waits for.
func (j *journal) add(r *record, object Object) (uint64, error) {
	text := r.encode()
	j.mu.Lock()
	defer j.mu.Unlock()
	need := int64(len(text))*(1+manifestGrowth) + manifestLeast
	if j.sizes[j.current]+int64(len(text)) > maxJournal || need > j.room {
		return 0, errNoRoom
	}
	if err := j.write(text); err != nil {
		return 0, err
	}
	j.room -= need
	j.pending[r.item] = pending{object: object}
	select {
	case j.more <- struct{}{}:
	default:
	}
	return j.added, nil
}

// note writes the record of a manifest that has changed without a change of its object, after those
// up to a revision.
func (j *journal) note(i item, manifest left, after uint64) error {
	r := record{item: i, manifest: manifest, kind: kindNoted, revision: after}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write(r.encode())
}

// write is called under the lock. A record that fails is cut off.
func (j *journal) write(text []byte) error {
	if j.failed != nil {
		return j.failed
	}
	at := j.sizes[j.current]
	if _, err := j.files[j.current].WriteAt(text, at); err != nil {
		return errors.Join(err, j.files[j.current].Truncate(at))
	}
	j.sizes[j.current] += int64(len(text))
	j.added++
	return nil
}

// isPending says that an object has changed since what was pending was taken.
func (j *journal) isPending(i item) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, is := j.pending[i]
	return is
}

// commit returns when the record is on the disk, where changes are to be. A goroutine syncs
// for all that wait.
func (j *journal) commit(record uint64) error {
	if !j.sync || record == 0 {
		return nil
	}
	j.syncing.Lock()
	defer j.syncing.Unlock()
	if j.synced >= record {
		return nil
	}
	j.mu.Lock()
	added, current := j.added, j.current
	j.mu.Unlock()
	return j.syncTo(added, current)
}

// syncTo is called with syncing held.
func (j *journal) syncTo(added uint64, file int) error {
	err := syscall.Fdatasync(int(j.files[file].Fd()))
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil && j.failed == nil {
		j.failed = fmt.Errorf("sync the journal: %w", err)
	}
	if j.failed == nil {
		j.synced = added
	}
	return j.failed
}

// turn takes what is pending. Later records are added to the other file, if that is empty.
func (j *journal) turn() (map[item]pending, error) {
	if j.sync {
		j.syncing.Lock()
		defer j.syncing.Unlock()
	}
	j.mu.Lock()
	before, added := j.current, j.added
	if j.sizes[1-before] == 0 {
		j.current = 1 - before
	}
	taken := j.pending
	j.pending = map[item]pending{}
	j.mu.Unlock()
	if j.sync && before != j.current {
		return taken, j.syncTo(added, before)
	}
	return taken, nil
}

// putBack makes pending what was taken and not written.
func (j *journal) putBack(left map[item]pending) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, p := range left {
		if now, changed := j.pending[i]; changed {
			p.object = now.object
		}
		j.pending[i] = p
	}
}

// empty empties the file that is not used now: the manifests of its records are written.
func (j *journal) empty() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	other := 1 - j.current
	if j.sizes[other] == 0 {
		return nil
	}
	err := j.files[other].Truncate(0)
	if err == nil {
		j.sizes[other] = 0
	}
	return err
}

// measure reads how much of the disk is free, but for the manifests that are pending.
func (j *journal) measure() {
	var disk syscall.Statfs_t
	room := int64(0)
	if syscall.Statfs(j.dir, &disk) == nil {
		room = int64(disk.Bavail) * disk.Bsize
		if disk.Files > 0 { // 0 where a filesystem does not count inodes
			room = min(room, int64(disk.Ffree)*manifestLeast)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.room = room - (j.sizes[0]+j.sizes[1])*manifestGrowth - int64(len(j.pending))*manifestLeast
}

// state is how many records were added, and whether there are records in the files.
func (j *journal) state() (added uint64, empty bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.added, j.sizes == [2]int64{}
}

// syncDisk brings what was written below the directory to the disk, where changes are to be.
func (j *journal) syncDisk() error {
	if !j.sync {
		return nil
	}
	return osprocess.SyncFilesystem(j.dir)
}

// record is a change in the journal, or a manifest that was noted.
type record struct {
	item
	kind     byte
	revision uint64 // of the change, or the latest before the note
	manifest left   // without its inode, which a copy does not have
	object   []byte // encoded, where it was put
}

// Kinds of records. Of those with the same revision the note is the later one.
const (
	kindPut = iota
	kindRemoved
	kindNoted
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A record is the length and the CRC-32C of what follows them, four bytes each, then the fields;
// an integer is a varint, a text has its length before it.
const recordHeader = 8

func (r *record) encode() []byte {
	b := make([]byte, recordHeader, recordHeader+len(r.resource)+len(r.Namespace)+len(r.Name)+len(r.object)+40)
	b = append(b, r.kind)
	b = binary.AppendUvarint(b, r.revision)
	for _, text := range []string{r.resource, r.Namespace, r.Name} {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	b = binary.AppendUvarint(b, r.manifest.revision)
	b = binary.AppendVarint(b, r.manifest.modified)
	b = binary.AppendVarint(b, r.manifest.size)
	b = append(b, r.object...)
	binary.LittleEndian.PutUint32(b, uint32(len(b)-recordHeader))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[recordHeader:], castagnoli))
	return b
}

// readRecords returns the records, the bytes that are none, and where the last record ends. Where the length of one
// leads out of the text, nothing behind it is read: in the object of a client bytes may look like a record.
func readRecords(text []byte) (records []record, unread []byte, end int) {
	at := 0
	for recordHeader <= len(text)-at {
		length, sum := binary.LittleEndian.Uint32(text[at:]), binary.LittleEndian.Uint32(text[at+4:])
		if uint64(length) > uint64(len(text)-at-recordHeader) {
			break
		}
		next := at + recordHeader + int(length)
		payload := text[at+recordHeader : next]
		if r, ok := decodeRecord(payload); ok && crc32.Checksum(payload, castagnoli) == sum {
			records, end = append(records, r), next
		} else {
			unread = append(unread, text[at:next]...)
		}
		at = next
	}
	return records, append(unread, text[at:]...), end
}

func decodeRecord(b []byte) (r record, ok bool) {
	if len(b) == 0 {
		return r, false
	}
	r.kind, b, ok = b[0], b[1:], true
	next := func(n int) { // n bytes were a number
		if ok = ok && n > 0; ok {
			b = b[n:]
		}
	}
	var n int
	r.revision, n = binary.Uvarint(b)
	next(n)
	for _, to := range []*string{&r.resource, &r.Namespace, &r.Name} {
		length, n := binary.Uvarint(b)
		if next(n); !ok || length > uint64(len(b)) {
			return r, false
		}
		*to, b = string(b[:length]), b[length:]
	}
	r.manifest.revision, n = binary.Uvarint(b)
	next(n)
	for _, to := range []*int64{&r.manifest.modified, &r.manifest.size} {
		*to, n = binary.Varint(b)
		next(n)
	}
	r.object = b
	return r, ok && r.kind <= kindNoted
}
