package intent

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	// A file has slots of a page each, for one entry each.
	slots    = 32
	slotSize = 4096
	fileSize = slots * slotSize
	// version is of the form of the slots and their entries.
	version = 1
	// A slot begins with its version and the length of the entry (one word; 0 is a free slot), the
	// CRC-32C of all that follows, the key and the order of the entries.
	lengthAt, sumAt, keyAt, orderAt, entryAt = 0, 4, 8, 16, 24
	// MaxEntry is the size of the largest entry, bytes.
	MaxEntry = slotSize - entryAt

	tmpfs, ramfs = 0x01021994, 0x858458f6 // f_type of statfs(2)
)

// Keys of slots without an entry: busy ones are being written or cleared.
const (
	free = iota
	busy
	firstKey
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// File has the entries. Its methods may be called from any goroutine; those of one key by one
// goroutine at a time. A nil File keeps nothing.
type File struct {
	file    *os.File // locked until Close
	memory  []byte
	keys    [slots]atomic.Uint64
	order   atomic.Uint64
	refused atomic.Uint64
}

// Entry is what was put, by its key.
type Entry struct {
	Key   uint64
	Data  []byte
	order uint64
}

// Open maps a file in a directory, which it creates and which must be on a tmpfs: a page of a
// disk's file can block a write. Entries that are torn, or of another version, are dropped. The
// error is also that another process has the file.
func Open(dir, name string, log *slog.Logger) (*File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var on syscall.Statfs_t
	if err := syscall.Statfs(dir, &on); err != nil {
		return nil, fmt.Errorf("statfs %s: %w", dir, err)
	}
	if t := uint32(on.Type); t != tmpfs && t != ramfs {
		return nil, fmt.Errorf("%s is not on a tmpfs", dir)
	}
	return open(filepath.Join(dir, name), log)
}

func open(path string, log *slog.Logger) (*File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	f := &File{file: file}
	faults, err := f.load()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map %s: %w", path, err), file.Close())
	}
	if len(faults) > 0 {
		log.Warn("evictions that were not in the journal cannot be read and are dropped", "file", path, "error", errors.Join(faults...))
	}
	return f, nil
}

// load locks, allocates and maps the file. Faults are of what it has.
func (f *File) load() (faults []error, err error) {
	var is syscall.Stat_t
	fd := int(f.file.Fd())
	if err := syscall.Fstat(fd, &is); err != nil {
		return nil, err
	}
	if is.Mode&syscall.S_IFMT != syscall.S_IFREG || int(is.Uid) != os.Geteuid() {
		return nil, errors.New("it is no file of this user")
	}
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("another process has locked it: %w", err)
	}
	all := make([]byte, fileSize)
	switch {
	case is.Size == fileSize:
		_, err = f.file.ReadAt(all, 0)
	case is.Size > 0:
		faults = append(faults, fmt.Errorf("it has %d bytes, expected %d", is.Size, fileSize))
		err = f.file.Truncate(0)
	}
	if err != nil {
		return nil, err
	}
	// Without a page for each slot a write to the mapping could fail by SIGBUS.
	if _, err := f.file.WriteAt(all, 0); err != nil {
		if is.Size != fileSize {
			err = errors.Join(err, f.file.Truncate(0))
		}
		return nil, err
	}
	if f.memory, err = syscall.Mmap(fd, 0, fileSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_POPULATE); err != nil {
		return nil, err
	}
	for i := range slots {
		if err := f.read(i); err != nil {
			faults = append(faults, fmt.Errorf("slot %d %w", i, err))
		}
	}
	return faults, nil
}

// read reads a slot and writes its first word, which maps the page for writing.
func (f *File) read(i int) error {
	entry, err := f.entry(i)
	if entry.Data == nil {
		f.setLength(i, 0)
		return err
	}
	f.setLength(i, version<<24|uint32(len(entry.Data)))
	f.keys[i].Store(entry.Key)
	f.order.Store(max(f.order.Load(), entry.order))
	return nil
}

// entry is that of a slot; without data where the slot is free, or err is set.
func (f *File) entry(i int) (e Entry, err error) {
	s := f.slot(i)
	switch word := binary.NativeEndian.Uint32(s[lengthAt:]); {
	case word == 0:
		return e, nil
	case word>>24 != version:
		return e, fmt.Errorf("has version %d, expected %d", word>>24, version)
	default:
		length := int(word & (1<<24 - 1))
		if length > MaxEntry || sum(s, length) != binary.NativeEndian.Uint32(s[sumAt:]) {
			return e, errors.New("does not match its checksum")
		}
		e = Entry{binary.NativeEndian.Uint64(s[keyAt:]), s[entryAt : entryAt+length : entryAt+length], binary.NativeEndian.Uint64(s[orderAt:])}
		if e.Key < firstKey {
			return Entry{}, errors.New("has no key")
		}
		return e, nil
	}
}

func (f *File) slot(i int) []byte { return f.memory[i*slotSize : (i+1)*slotSize] }

func (f *File) setLength(i int, word uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&f.slot(i)[lengthAt])), word)
}

func sum(slot []byte, length int) uint32 {
	return crc32.Checksum(slot[keyAt:entryAt+length], castagnoli)
}

// Key is the key of an eviction: its pod's uid, and when it was decided, nanoseconds.
func Key(uid string, decided int64) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(uid) {
		h = (h ^ uint64(uid[i])) * 1099511628211
	}
	for ; decided != 0; decided = int64(uint64(decided) >> 8) {
		h = (h ^ uint64(decided&0xff)) * 1099511628211
	}
	return max(h, firstKey)
}

// Put keeps the entry of a key, in place of an earlier one. It says false, and Refused counts, where
// no slot is free or the entry is too large; an earlier one stays then.
func (f *File) Put(key uint64, entry []byte) bool {
	kept := f.put(key, entry)
	if f != nil && !kept {
		f.refused.Add(1)
	}
	return kept
}

func (f *File) put(key uint64, entry []byte) bool {
	if f == nil || len(entry) > MaxEntry {
		return false
	}
	at := 0
	for ; !f.keys[at].CompareAndSwap(free, busy); at++ {
		if at == slots-1 {
			return false
		}
	}
	s := f.slot(at)
	binary.NativeEndian.PutUint64(s[keyAt:], key)
	binary.NativeEndian.PutUint64(s[orderAt:], f.order.Add(1))
	copy(s[entryAt:], entry)
	binary.NativeEndian.PutUint32(s[sumAt:], sum(s, len(entry)))
	f.setLength(at, version<<24|uint32(len(entry)))
	f.Free(key)
	f.keys[at].Store(key)
	return true
}

// Replace is Put where the key has an entry, which stays where the new one is not kept.
func (f *File) Replace(key uint64, entry []byte) bool {
	if f == nil {
		return false
	}
	for i := range f.keys {
		if f.keys[i].Load() == key {
			return f.put(key, entry)
		}
	}
	return false
}

// Free drops the entry of a key, if there is one.
func (f *File) Free(key uint64) {
	if f == nil {
		return
	}
	for i := range f.keys {
		if f.keys[i].CompareAndSwap(key, busy) {
			f.setLength(i, 0)
			f.keys[i].Store(free)
		}
	}
}

// Entries are all, in the order in which they were put; of one key the last.
func (f *File) Entries() (all []Entry) {
	if f == nil {
		return nil
	}
	for i := range f.keys {
		if e, err := f.entry(i); err == nil && e.Data != nil {
			e.Data = bytes.Clone(e.Data)
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(a.order, b.order) })
	return slices.DeleteFunc(all, func(e Entry) bool {
		return slices.ContainsFunc(all, func(o Entry) bool { return o.Key == e.Key && o.order > e.order })
	})
}

// Refused counts the entries that were not kept.
func (f *File) Refused() uint64 {
	if f == nil {
		return 0
	}
	return f.refused.Load()
}

// Close unmaps the file. Where no entry is left it frees its memory.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	left := len(f.Entries())
	err := syscall.Munmap(f.memory)
	f.memory = nil
	if err == nil && left == 0 {
		err = f.file.Truncate(0)
	}
	return errors.Join(err, f.file.Close())
}
