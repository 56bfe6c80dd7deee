// Package nodestatus converts the state of eviction into what the cluster reads: node
// conditions, taints, allocatable resources and headroom, and the status document of
// the daemon. It publishes nothing and reads no clock.
package nodestatus

import (
	"fmt"
	"strings"
)

// Mode says which other eviction manager runs on the node, and which names evictd uses.
// The zero Mode is Native.
type Mode uint8

// The modes.
const (
	Native   Mode = iota // no other manager: uses the kubelet's names
	Takeover             // the kubelet's eviction is switched off
	Backstop             // acts before the kubelet has to
	Observe              // neither evicts nor publishes
)

var modes = [...]struct {
	name    string
	acts    bool
	builtIn bool
}{
	Native:   {"native", true, true},
	Takeover: {"takeover", true, false},
	Backstop: {"backstop", true, false},
	Observe:  {"observe", false, false},
}

// ParseMode finds the mode by its name in flags and configuration.
func ParseMode(name string) (Mode, error) {
	var names []string
	for i, mode := range modes {
		if mode.name == name {
			return Mode(i), nil
		}
		names = append(names, mode.name)
	}
	return 0, fmt.Errorf("unknown mode %q, want one of %s", name, strings.Join(names, ", "))
}

func (m Mode) String() string { return modes[m].name }

// Acts says whether the daemon evicts, and publishes beyond its status address.
func (m Mode) Acts() bool { return modes[m].acts }

// BuiltIn says whether the daemon writes the kubelet's conditions and taints.
func (m Mode) BuiltIn() bool { return modes[m].builtIn }

// MarshalText writes the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is ParseMode.
func (m *Mode) UnmarshalText(name []byte) (err error) {
	*m, err = ParseMode(string(name))
	return err
}

// names returns the names that the mode uses for a condition.
func (m Mode) names(condition int) names {
	if m.BuiltIn() {
		return builtIn[condition]
	}
	return own[condition]
}
