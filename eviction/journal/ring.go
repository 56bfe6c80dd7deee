package journal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

const (
	ringPrefix = "flight-"
	// endMark follows the last record of a segment; older bytes after it are ignored.
	endMark = 0
	// lineOverhead is the largest overhead of a record, bytes.
	lineOverhead = 8 + 1 + 20 + 1 + 1 + 1
)

// ErrTooLarge says that a record does not fit.
var ErrTooLarge = errors.New("the segment has no room for the record")

// Ring keeps the last records in files of a fixed size, preallocated when it is opened:
// a disk that is full later loses no record. Each segment begins with a key record,
// which makes its records readable without earlier segments. One goroutine may use it.
type Ring struct {
	dir   string
	bytes int64
	files []ringFile
	at    int // the segment that is written
	end   int64
}

type ringFile struct {
	path   string
	number uint64 // of the segment in it; 0 for none
}

// OpenRing opens the ring in a directory, which it creates, and continues it. segments
// and size, in bytes, replace earlier settings.
func OpenRing(dir string, segments int, size int64) (*Ring, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open ring: %w", err)
	}
	r := &Ring{dir: dir, bytes: size, files: make([]ringFile, segments), end: size}
	for i := range r.files {
		path := filepath.Join(dir, ringPrefix+strconv.Itoa(i))
		if err := preallocate(path, size); err != nil {
			return nil, fmt.Errorf("open ring: %w", err)
		}
		segment, err := readSegment(path)
		if err != nil {
			return nil, fmt.Errorf("open ring: %w", err)
		}
		r.files[i] = ringFile{path, segment.Number}
		if segment.Number > r.files[r.at].number {
			r.at = i
		}
	}
	return r, nil // the next record begins a new segment: records may have been lost since
}

// preallocate creates a file with allocated blocks.
func preallocate(path string, size int64) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() > size {
		if err := file.Truncate(size); err != nil {
			return err
		}
	}
	// The size does not say it: a file may be sparse.
	err = syscall.Fallocate(int(file.Fd()), 0, 0, size)
	if errors.Is(err, syscall.EOPNOTSUPP) { // write zeroes instead
		err = nil
		if info.Size() < size {
			_, err = file.WriteAt(make([]byte, size), 0)
		}
	}
	if err != nil {
		return fmt.Errorf("allocate %d bytes for %s: %w", size, path, err)
	}
	return file.Sync()
}

// Left is the remaining size of the current segment, bytes; zero where the next record
// must be the key of a new one.
func (r *Ring) Left() int64 { return max(0, r.bytes-r.end-lineOverhead) }

// Append writes a record, one line, to the current segment; a durable one is synced to
// the disk. The error is ErrTooLarge where it needs more than Left.
func (r *Ring) Append(record []byte, durable bool) error {
	if int64(len(record)) > r.Left() {
		return fmt.Errorf("append to ring: %w: %d bytes", ErrTooLarge, len(record))
	}
	return r.write(ringLine(nil, r.files[r.at].number, record), durable)
}

// Begin writes the key of a new segment over the oldest one.
func (r *Ring) Begin(key []byte) error {
	if int64(len(key)) > r.bytes-lineOverhead {
		return fmt.Errorf("append to ring: %w: %d bytes", ErrTooLarge, len(key))
	}
	number := r.files[r.at].number + 1
	for i := range r.files {
		if r.files[i].number < r.files[r.at].number {
			r.at = i
		}
	}
	r.files[r.at].number, r.end = number, 0
	return r.write(ringLine(nil, number, key), true)
}

func (r *Ring) write(text []byte, durable bool) error {
	file, err := os.OpenFile(r.files[r.at].path, os.O_WRONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("append to ring: %w", err)
	}
	defer file.Close()
	_, err = file.WriteAt(append(text, endMark), r.end)
	if err == nil && durable {
		err = syscall.Fdatasync(int(file.Fd()))
	}
	if err != nil {
		r.end = r.bytes // half a record may have been written
		return fmt.Errorf("append to ring: %w", err)
	}
	r.end += int64(len(text))
	return nil
}

// Segment is a part of the ring: its key record, and the records after it.
type Segment struct {
	Number  uint64
	Key     []byte
	Records [][]byte
}

// ReadRing reads the segments of a ring, oldest first. It may be written at the same
// time. A torn record ends its segment.
func ReadRing(dir string) ([]Segment, error) {
	paths, err := filepath.Glob(filepath.Join(dir, ringPrefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("read ring: %w", err)
	}
	var segments []Segment
	for _, path := range paths {
		segment, err := readSegment(path)
		if err != nil {
			return nil, fmt.Errorf("read ring: %w", err)
		}
		if segment.Number > 0 {
			segments = append(segments, segment)
		}
	}
	slices.SortFunc(segments, func(a, b Segment) int { return int(a.Number) - int(b.Number) })
	return segments, nil
}

func readSegment(path string) (Segment, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Segment{}, nil
	}
	if err != nil {
		return Segment{}, err
	}
	var s Segment
	for text, whole := range split(data) {
		number, record, ok := parseRingLine(text)
		if !whole || !ok || s.Number != 0 && number != s.Number {
			break
		}
		if s.Number == 0 {
			s.Number, s.Key = number, record
			continue
		}
		s.Records = append(s.Records, record)
	}
	return s, nil
}

// ringLine appends a checksum, the number of the segment and the record.
func ringLine(text []byte, number uint64, record []byte) []byte {
	body := append(strconv.AppendUint(nil, number, 10), ' ')
	body = append(body, record...)
	return fmt.Appendf(text, "%08x %s\n", crc32.Checksum(body, castagnoli), body)
}

func parseRingLine(text []byte) (number uint64, record []byte, ok bool) {
	digits, body, found := bytes.Cut(text, []byte{' '})
	sum, err := strconv.ParseUint(string(digits), 16, 32)
	if !found || err != nil || uint32(sum) != crc32.Checksum(body, castagnoli) {
		return 0, nil, false
	}
	name, record, found := bytes.Cut(body, []byte{' '})
	number, err = strconv.ParseUint(string(name), 10, 64)
	return number, record, found && err == nil && number > 0
}
