package framework

import "github.com/evictd/evictd/scheduleradapter/nodetable"

// ScoreCache keeps the results of all rows between attempts, for pods with equal
// signatures. Only the rows that changed are evaluated again. Its zero value is empty.
// One goroutine uses it.
//
// The selected row is that of Runner.Filter and Runner.Score on all nodes, with the same
// use of random numbers.
type ScoreCache struct {
	entries map[Signature]*rowScores
	// sightings are attempts with signatures without an entry, by hash. A later one
	// replaces another with the same index.
	sightings []sighting
	clock     uint64 // counts attempts
	bytes     int    // of entries
	spare     *rowScores
}

const (
	// leastCacheBytes and cacheBytesPerRow bound the entries: the larger of the first
	// and the second by the number of rows.
	leastCacheBytes  = 256 << 20
	cacheBytesPerRow = 640
	// mostEntries bounds the entries of small tables, recentSignatures the sightings.
	mostEntries      = 4096
	recentSignatures = 2048
	// retryClasses is the number of attempts before a signature with too many classes is
	// evaluated again.
	retryClasses = 4096
)

// sighting is the last attempt with a signature: its time, and the mark of the table.
type sighting struct {
	signature   Signature
	clock, mark uint64
}

// find is the entry of the cycle's signature with the results of all rows; nil: there is
// none.
func (k *ScoreCache) find(c *Cycle) *rowScores {
	k.clock++
	s, t := &c.rowPlugins.signature, c.Table
	e := k.entries[*s]
	if e != nil && !e.full && !few(t, e.mark) {
		k.remove(e)
		e = nil
	}
	if e == nil {
		clock, mark, known := k.note(s, t)
		if !known || !few(t, mark) || !k.makeRoom(t.Rows(), clock) {
			return nil
		}
		e = k.add(s)
	}
	e.used = k.clock
	if e.full && k.clock < e.retry {
		return nil
	}
	k.bytes -= e.bytes()
	known := e.refresh(c)
	k.bytes += e.bytes()
	switch {
	case e.full:
		*e = rowScores{signature: e.signature, used: e.used, full: true, retry: k.clock + retryClasses}
		return nil
	case !known:
		k.remove(e)
		return nil
	}
	for k.bytes > mostBytes(t.Rows()) {
		oldest := k.oldest()
		if oldest == e {
			break
		}
		k.remove(oldest)
	}
	return e
}

// few reports whether it is faster to evaluate the rows that changed since a mark than to
// evaluate all.
func few(t *nodetable.Table, mark uint64) bool {
	changed, ok := t.ChangedSince(mark)
	return ok && len(changed) <= fewRows+t.Rows()/fewShare
}

func mostBytes(rows int) int { return max(leastCacheBytes, rows*cacheBytesPerRow) }

// note stores the attempt as the last one with a signature, and returns the one before.
func (k *ScoreCache) note(s *Signature, t *nodetable.Table) (clock, mark uint64, known bool) {
	if k.sightings == nil {
		k.sightings = make([]sighting, recentSignatures)
	}
	last := &k.sightings[s.hash()%recentSignatures]
	clock, mark, known = last.clock, last.mark, last.signature == *s
	*last = sighting{*s, k.clock, t.Mark()}
	return clock, mark, known
}

// makeRoom removes entries for one of a number of rows; false: those that are left were
// used since a time.
func (k *ScoreCache) makeRoom(rows int, since uint64) bool {
	for k.bytes+4*rows > mostBytes(rows) || len(k.entries) >= mostEntries {
		oldest := k.oldest()
		if oldest == nil || oldest.used > since {
			return false
		}
		k.remove(oldest)
	}
	return true
}

func (k *ScoreCache) add(s *Signature) *rowScores {
	e := k.spare
	if k.spare = nil; e == nil {
		e = &rowScores{}
	}
	if k.entries == nil {
		k.entries = map[Signature]*rowScores{}
	}
	e.empty(0)
	e.signature, e.mark = *s, 0
	k.entries[*s] = e
	return e
}

func (k *ScoreCache) oldest() (oldest *rowScores) {
	for _, e := range k.entries {
		if oldest == nil || e.used < oldest.used {
			oldest = e
		}
	}
	return oldest
}

// remove removes an entry. The next one may reuse its memory.
func (k *ScoreCache) remove(e *rowScores) {
	k.bytes -= e.bytes()
	delete(k.entries, e.signature)
	k.spare = e
}

// refresh evaluates the rows that changed, or all rows of a new entry; false: the results
// are not known.
func (e *rowScores) refresh(c *Cycle) bool {
	t := c.Table
	if e.full {
		e.mark = 0
	}
	changed, ok := t.ChangedSince(e.mark)
	e.mark = t.Mark()
	if !ok {
		return e.evaluateAll(c)
	}
	e.extend(t.Rows())
	for _, row := range changed {
		if !e.evaluate(c, row) {
			e.full = true
			return false
		}
	}
	return true
}

// fewRows are evaluated one by one in a table of any size, and 1/fewShare of the rows.
const fewRows, fewShare = 64, 16
