package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"strconv"
)

// line is one change: eight hexadecimal digits, the CRC-32C of the JSON that follows
// after a space. Unknown kinds are kept.
type line struct {
	Entry
	Dropped bool `json:"dropped,omitempty"`
}

const sumDigits = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (l line) append(text []byte) []byte {
	body, _ := json.Marshal(l) // of strings and marshalled JSON
	return fmt.Appendf(text, "%08x %s\n", crc32.Checksum(body, castagnoli), body)
}

var (
	errTorn     = errors.New("its last line is torn")
	errChecksum = errors.New("a line does not match its checksum")
)

// parse parses a line; whole says whether it had a line end.
func parse(text []byte, whole bool) (l line, err error) {
	if !whole {
		return line{}, errTorn
	}
	digits, body, found := bytes.Cut(text, []byte{' '})
	sum, err := strconv.ParseUint(string(digits), 16, 32)
	if !found || err != nil || len(digits) != sumDigits || uint32(sum) != crc32.Checksum(body, castagnoli) {
		return line{}, errChecksum
	}
	if err := json.Unmarshal(body, &l); err != nil {
		return line{}, fmt.Errorf("a line is not an entry: %w", err)
	}
	if l.Kind == "" || l.ID == "" {
		return line{}, errors.New("a line has no kind or no id")
	}
	return l, nil
}

// split yields the lines of a file without their ends, and whether they had one.
func split(data []byte) iter.Seq2[[]byte, bool] {
	return func(yield func([]byte, bool) bool) {
		for text := range bytes.Lines(data) {
			body, whole := bytes.CutSuffix(text, []byte{'\n'})
			if !yield(body, whole) {
				return
			}
		}
	}
}
