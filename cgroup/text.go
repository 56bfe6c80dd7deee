package cgroup

import (
	"bytes"

	"github.com/evictd/evictd/stats"
)

// unlimited: a v1 limit above 2^62 bytes is no limit, as for the kubelet.
const unlimited = 1 << 62

// amount reads a file that holds one number, "max" or nothing.
func amount(b []byte) stats.Amount {
	n, ok := number(bytes.TrimSpace(b))
	if !ok || n > unlimited {
		return stats.Amount{}
	}
	return stats.Known(n)
}

// number reads decimal digits and nothing else, without overflow.
func number(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return int64(n), n <= 1<<63-1
}

// cutLine returns the first line of b, and what follows it.
func cutLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, []byte{'\n'})
	return line, rest
}

// flat returns the value of a key in a flat keyed file ("KEY VALUE" lines).
func flat(b []byte, key string) stats.Amount {
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		if len(line) > len(key) && line[len(key)] == ' ' && string(line[:len(key)]) == key {
			return amount(line[len(key)+1:])
		}
	}
	return stats.Amount{}
}
