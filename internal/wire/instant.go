package wire

import (
	"encoding/json"
	"time"
)

// Instant is a time that both processes wait for or look back to. A message has it as the
// time from now, nanoseconds: a clock that is set meanwhile changes nothing.
type Instant struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (i Instant) MarshalJSON() ([]byte, error) {
	if i.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(time.Until(i.Time))
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *Instant) UnmarshalJSON(text []byte) error {
	var from *time.Duration
	if err := json.Unmarshal(text, &from); err != nil {
		return err
	}
	*i = Instant{}
	if from != nil {
		i.Time = time.Now().Add(*from)
	}
	return nil
}
