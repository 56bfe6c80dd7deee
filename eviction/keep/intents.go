package keep

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/intent"
	"github.com/evictd/evictd/internal/osprocess"
)

// Intents writes evictions to a file that survives the process, without what is not known before
// the first signal: their message has no figures. The Keeper adds the figures once it has the report; an
// eviction whose report was lost stays, and the next process reports it. An Intents is the loop's.
type Intents struct {
	file *intent.File
	api  bool
	text []byte                      // buffer
	low  [eviction.NumSignals]string // messages
}

// NewIntents makes an Intents. api is as for New.
func NewIntents(file *intent.File, api bool) *Intents {
	i := &Intents{file: file, api: api, text: make([]byte, 0, intent.MaxEntry)}
	for _, s := range eviction.Signals() {
		i.low[s] = eviction.NodeLowMessage(s)
	}
	return i
}

// Put implements control.Intents.
func (i *Intents) Put(e *eviction.Eviction, f *eviction.InFlight) {
	i.text = i.appendRecord(i.text[:0], e, f)
	i.file.Put(key(f), i.text)
}

// Withdraw implements control.Intents.
func (i *Intents) Withdraw(f *eviction.InFlight) { i.file.Free(key(f)) }

func key(f *eviction.InFlight) uint64 { return intent.Key(string(f.UID), f.Decided.UnixNano()) }

func (r *record) key() uint64 { return intent.Key(string(r.UID), r.Decided.UnixNano()) }

// appendRecord appends a record as JSON. Unlike json.Marshal it allocates nothing.
func (i *Intents) appendRecord(b []byte, e *eviction.Eviction, f *eviction.InFlight) []byte {
	message := e.Message
	if message == "" { // see eviction.Decision.Explain
		message = i.low[e.Signal]
	}
	b = append(b, '{')
	b = appendString(b, "namespace", e.Pod.Namespace)
	b = appendString(b, "name", e.Pod.Name)
	b = appendInt(b, "generation", e.Pod.Generation)
	b = appendString(b, "owner", string(e.Pod.Owner))
	b = appendTime(b, "crossed", e.Since)
	b = appendString(b, "message", message)
	b = appendBool(b, "disruptionTarget", e.DisruptionTarget)
	b = appendBool(b, "asked", !e.Hard && f.Patience > 0)
	b = appendBool(b, "reported", !i.api)
	b = appendVictim(b, f)
	b = append(appendKey(b, "inFlight"), '{')
	b = appendVictim(b, f)
	b = appendInt(b, "grace", int64(f.Grace))
	b = appendInt(b, "patience", int64(f.Patience))
	return append(b, "}}"...)
}

// appendVictim appends what both an Intent and a KeptVictim have.
func appendVictim(b []byte, f *eviction.InFlight) []byte {
	b = appendString(b, "uid", string(f.UID))
	b = appendString(b, "signal", f.Signal.String())
	b = appendBool(b, "hard", f.Hard)
	return appendTime(b, "decided", f.Decided)
}

func appendKey(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(append(append(b, '"'), name...), `":`...)
}

func appendString(b []byte, name, value string) []byte {
	b = append(appendKey(b, name), '"')
	for i := range len(value) {
		switch c := value[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(append(b, `\u00`...), "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func appendInt(b []byte, name string, value int64) []byte {
	return strconv.AppendInt(appendKey(b, name), value, 10)
}

func appendBool(b []byte, name string, value bool) []byte {
	return strconv.AppendBool(appendKey(b, name), value)
}

func appendTime(b []byte, name string, value time.Time) []byte {
	b = value.AppendFormat(append(appendKey(b, name), '"'), time.RFC3339Nano)
	return append(b, '"')
}

// readIntents adds the evictions that the journal does not have, or not as they were last.
func (k *Keeper) readIntents(now osprocess.Instant) {
	added := 0
	for _, e := range k.intents.Entries() {
		r := &record{pending: true, change: math.MaxUint64}
		if err := json.Unmarshal(e.Data, r); err != nil || r.UID == "" || r.ID == "" && r.InFlight == nil {
			k.log.Warn("an eviction that was not in the journal cannot be read and is dropped", "error", err)
			k.intents.Free(e.Key)
			continue
		}
		ofLoop := r.ID == ""
		if ofLoop {
			r.ID = (&eviction.InFlight{UID: r.UID, Decided: r.Decided}).ID()
			r.At, r.InFlight.Since = now, max(0, now.Wall.Sub(r.Decided))
		}
		newer := func(o *record) bool { return o.UID == r.UID && (o.Decided.After(r.Decided) || ofLoop && o.ID == r.ID) }
		if slices.ContainsFunc(k.records, newer) {
			k.intents.Free(e.Key)
			continue
		}
		k.records = slices.DeleteFunc(k.records, func(o *record) bool {
			if o.UID == r.UID && o.ID != r.ID {
				k.journal.Drop(evictionKind, o.ID)
			}
			return o.UID == r.UID
		})
		k.records = append(k.records, r)
		added++
	}
	if added > 0 {
		k.log.Info("evictions from before the start were not in the journal", "evictions", added)
	}
}

// overrideIntent writes an Override to the intent of an eviction whose report has not come yet. The
// lock is held.
func (k *Keeper) overrideIntent(uid types.UID, why string) {
	for _, e := range k.intents.Entries() {
		r := &record{}
		if json.Unmarshal(e.Data, r) != nil || r.UID != uid || r.ID != "" {
			continue
		}
		r.Override = why
		if data, err := json.Marshal(r); err == nil {
			k.intents.Put(e.Key, data)
		}
	}
}

// written frees the intents of evictions that the journal has.
func (k *Keeper) written(changes uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		if r.pending && r.change <= changes {
			k.intents.Free(r.key())
			r.pending = false
		}
	}
}
