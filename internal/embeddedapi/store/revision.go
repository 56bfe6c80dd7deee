package store

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// block is how many revisions are reserved at once.
const block = 100_000

// revisions issues numbers that no store on the same directory has issued: a block of
// numbers is reserved in a file before they are used.
type revisions struct {
	mu             sync.Mutex
	data           string
	first          uint64 // where this store began
	last, reserved uint64
}

// reserve reserves a block after all earlier ones.
func reserve(data string, highest uint64, log *slog.Logger) (*revisions, error) {
	r := &revisions{data: data, last: highest}
	text, err := os.ReadFile(filepath.Join(data, revisionFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		reserved, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			log.Error("the file of reserved revisions is torn; the next revision is the time in microseconds", "file", filepath.Join(data, revisionFile), "error", err)
			reserved = uint64(time.Now().UnixMicro()) // more than there were changes
		}
		r.last = max(highest, reserved)
	}
	r.first, err = r.next()
	return r, err
}

func (r *revisions) current() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func (r *revisions) next() (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last >= r.reserved {
		reserved := r.last + block
		text := strconv.AppendUint(nil, reserved, 10)
		if err := replace(r.data, revisionFile, append(text, '\n')); err != nil {
			return 0, fmt.Errorf("reserve revisions: %w", err)
		}
		r.reserved = reserved
	}
	r.last++
	return r.last, nil
}
