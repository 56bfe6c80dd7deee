package wire

import (
	"errors"
	"time"
)

// OrderKind is the kind of an Order.
type OrderKind string

// The kinds of orders. A container that runs is not removed, and neither is the
// image of one.
const (
	StopContainer   OrderKind = "stopContainer"
	StopSandbox     OrderKind = "stopSandbox"
	RemoveContainer OrderKind = "removeContainer"
	RemoveSandbox   OrderKind = "removeSandbox"
	RemoveImage     OrderKind = "removeImage"
)

// Order is a call of the runtime. It is sent once, and answered by Done with its id.
type Order struct {
	ID     uint64    `json:"id"`
	Kind   OrderKind `json:"kind"`
	Target string    `json:"target"` // the id of the container, sandbox or image
	// Grace is the time of a container between its stop signal and SIGKILL;
	// the CRI counts whole seconds, and less than one is none.
	Grace time.Duration `json:"grace,omitempty"`
	// Deadline of the runtime's answer.
	Deadline Instant `json:"deadline"`
}

// Done is the result of an Order.
type Done struct {
	ID uint64 `json:"id"`
	// Error is empty on success. What no longer exists counts as stopped and as removed.
	Error string `json:"error,omitempty"`
	// Away says that the error is ErrAway.
	Away bool `json:"away,omitempty"`
}

// ErrAway says that the container runtime does not answer. The order may have been carried out or
// not.
var ErrAway = errors.New("the container runtime does not answer")

// RuntimeAnswer is what a container runtime says of its version: the output of `evictd-agent ask` is a list.
type RuntimeAnswer struct {
	Socket  string `json:"socket"` // its path
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Error   string `json:"error,omitempty"` // "" if it answers
}
