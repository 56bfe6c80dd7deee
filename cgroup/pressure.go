package cgroup

import (
	"bytes"
	"time"

	"github.com/evictd/evictd/stats"
)

// Resource is what tasks wait for in pressure stall information.
type Resource int

// The resources that have a pressure file.
const (
	MemoryStall Resource = iota
	IOStall
	CPUStall
	numResources
)

var pressureFiles = [numResources]string{"memory.pressure\x00", "io.pressure\x00", "cpu.pressure\x00"}

// Pressure reads how long the group's tasks have waited. It is unknown without PSI, and
// for a v1 group that does not exist in a v2 hierarchy.
func (g *Group) Pressure(r Resource) (stats.Stall, error) {
	var buf [readSize]byte
	b, err := readKept(&g.pressure[r], g.dirs[unified], pressureFiles[r], buf[:])
	if err != nil {
		return stats.Stall{}, g.fault("read pressure", err)
	}
	return ParsePressure(b), nil
}

// ParsePressure reads the totals of a pressure file, those of a group or those in
// /proc/pressure, which count microseconds. The line "full" is missing for the
// CPU before Linux 5.13 and then zero.
func ParsePressure(b []byte) stats.Stall {
	var s stats.Stall
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		total := bytes.LastIndex(line, []byte(" total="))
		if total < 0 {
			continue
		}
		micros, ok := number(line[total+len(" total="):])
		if !ok || micros > int64(1<<63-1)/int64(time.Microsecond) {
			continue
		}
		stalled := time.Duration(micros) * time.Microsecond
		switch {
		case bytes.HasPrefix(line, []byte("some ")):
			s.Some, s.Known = stalled, true
		case bytes.HasPrefix(line, []byte("full ")):
			s.Full = stalled
		}
	}
	if !s.Known {
		return stats.Stall{}
	}
	return s
}
