package checkpoint

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
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
	text []byte                      // buffer
	low  [eviction.NumSignals]string // messages
	// record is that of the last Put, and victim its InFlight. The members point into them.
	record            record
	victim            eviction.KeptVictim
	patience          time.Duration
	members, ofVictim []member
}

// member is a field of a record with its name in JSON.
type member struct {
	name  string
	value any // a pointer to a string, int64, bool or time.Time
}

// NewIntents makes an Intents. api is as for New.
func NewIntents(file *intent.File, api bool) *Intents {
	i := &Intents{file: file, text: make([]byte, 0, intent.MaxEntry)}
	for _, s := range eviction.Signals() {
		i.low[s] = eviction.NodeLowMessage(s)
	}
	i.record.Reported, i.victim.Patience = !api, &i.patience
	i.members, i.ofVictim = membersOf(&i.record), membersOf(&i.victim)
	return i
}

// membersOf are the members of a struct, which a pointer is of, but for those of other types than
// a member has.
func membersOf(of any) (members []member) {
	v := reflect.ValueOf(of).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		pointer := v.FieldByIndex(f.Index).Addr()
		if f.Type.Kind() == reflect.Pointer {
			pointer = pointer.Elem()
		}
		for _, kind := range []reflect.Type{reflect.TypeFor[*string](), reflect.TypeFor[*int64](), reflect.TypeFor[*bool](), reflect.TypeFor[*time.Time]()} {
			if pointer.CanConvert(kind) {
				members = append(members, member{name, pointer.Convert(kind).Interface()})
			}
		}
	}
	return members
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
	i.record.Intent = intentOf(e, f)
	if e.Message == "" { // see eviction.Decision.Explain
		i.record.Message = i.low[e.Signal]
	}
	i.patience = f.Patience
	i.victim = eviction.KeptVictim{UID: f.UID, Decided: f.Decided, Signal: f.Signal.String(), Hard: f.Hard, Grace: f.Grace, Patience: &i.patience}
	b = appendMembers(append(b, '{'), i.members)
	b = appendMembers(append(b, `,"inFlight":{`...), i.ofVictim)
	return append(b, "}}"...)
}

func appendMembers(b []byte, members []member) []byte {
	for n := range members {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), members[n].name...), `":`...)
		switch value := members[n].value.(type) {
		case *string:
			b = appendString(b, *value)
		case *int64:
			b = strconv.AppendInt(b, *value, 10)
		case *bool:
			b = strconv.AppendBool(b, *value)
		case *time.Time:
			b = append(value.AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
		}
	}
	return b
}

func appendString(b []byte, value string) []byte {
	b = append(b, '"')
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
