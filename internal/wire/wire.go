// Package wire is what evictd and its agent, the process that speaks to the API
// server and the container runtime, say to each other: JSON messages, a line each,
// over a stream socket. It knows neither a client nor a server.
package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
)

// FD is the agent's end of the line, whoever has started it: the first that a
// service manager passes has this number, too (sd_listen_fds(3)).
const FD = 3

// Down is one message to the agent: exactly one field is set. The first one is
// Node. A later message of the same kind, and id, replaces an earlier one.
type Down struct {
	Node     *Node     `json:"node,omitempty"`
	Standing *Standing `json:"standing,omitempty"`
	Headroom *Headroom `json:"headroom,omitempty"`
	Intent   *Intent   `json:"intent,omitempty"`
	Ask      *Ask      `json:"ask,omitempty"`
	Event    *Event    `json:"event,omitempty"`
	Order    *Order    `json:"order,omitempty"`
	// Look asks for figures of the runtime that are younger than the message.
	Look bool `json:"look,omitempty"`
}

// Node is what does not change while evictd runs.
type Node struct {
	Name string `json:"name"`
	Mode string `json:"mode"` // name of a nodestatus.Mode
	// Publish is false where the agent only reads.
	Publish bool `json:"publish"`
	// Register says that no kubelet speaks for the node, so that evictd does.
	Register              bool            `json:"register"`
	Capacity, Allocatable v1.ResourceList `json:",omitempty"`
	// StatusFrequency is how often the node's status is held against what it
	// ought to be.
	StatusFrequency time.Duration `json:"statusFrequency"`
	// Kubeconfig and Server name the API server to an agent that was told of none.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Server     string `json:"server,omitempty"`
	// Runc says that containers run by runc itself are to be found, in RuncState:
	// patterns of directories, none being the usual ones.
	Runc      bool     `json:"runc,omitempty"`
	RuncState []string `json:"runcState,omitempty"`
}

// Standing is how the node stands.
type Standing struct {
	At         Instant            `json:"at"` // of the pass
	Conditions []v1.NodeCondition `json:"conditions"`
	Raised     [3]bool            `json:"raised"` // in the order of eviction.Condition
}

// Headroom is the value of nodestatus.HeadroomAnnotation.
type Headroom struct {
	Annotation string `json:"annotation"`
	// Urgent: a level has changed since the last one.
	Urgent bool `json:"urgent"`
}

// Intent is one eviction as far as it has come. It is kept and said again until
// the agent has told the API server all of it.
type Intent struct {
	ID               string            `json:"id"`
	UID              types.UID         `json:"uid"`
	Namespace        string            `json:"namespace"`
	Name             string            `json:"name"`
	Generation       int64             `json:"generation"`
	Owner            types.UID         `json:"owner"` // of the controlling owner, else of the pod
	Signal           string            `json:"signal"`
	Hard             bool              `json:"hard"`
	Crossed          time.Time         `json:"crossed"` // the signal was first seen below the threshold
	Decided          time.Time         `json:"decided"`
	Message          string            `json:"message"`
	Annotations      map[string]string `json:"annotations,omitempty"` // of the event
	DisruptionTarget bool              `json:"disruptionTarget"`
	// Asked: the pod goes by the Eviction API, which writes what there is to
	// write, unless Override is set.
	Asked bool `json:"asked,omitempty"`
	// Override says why the pod goes although the Eviction API did not let it.
	Override string `json:"override,omitempty"`
	// Overdue: the pod has outlived its grace period.
	Overdue bool `json:"overdue,omitempty"`
	// Over is when the pod was gone, or its end was given up; zero before.
	Over time.Time `json:"over,omitzero"`
}

// Ask is a request to the Eviction API for a pod that disruption budgets may
// protect. It is repeated until it is answered or Deadline has passed.
type Ask struct {
	UID          types.UID `json:"uid"`
	Pod          string    `json:"pod"` // namespace/name
	GraceSeconds int64     `json:"graceSeconds"`
	Deadline     Instant   `json:"deadline"`
}

// Event is an event about the node, or about a pod of it where that is set.
type Event struct {
	Pod    PodName   `json:"pod,omitzero"`
	At     time.Time `json:"at"`
	Type   string    `json:"type"` // v1.EventTypeNormal or v1.EventTypeWarning
	Reason string    `json:"reason"`
	Action string    `json:"action"`
	Note   string    `json:"note"`
}

// PodName is what an event needs to know of a pod.
type PodName struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
}

// Up is one message from the agent: exactly one field is set.
type Up struct {
	Pod  *v1.Pod   `json:"pod,omitempty"`  // is new or has changed
	Gone types.UID `json:"gone,omitempty"` // this pod is no longer of the node
	// Synced: all pods there are have been sent at least once.
	Synced bool    `json:"synced,omitempty"`
	Told   string  `json:"told,omitempty"` // the id of an intent that is done with
	Answer *Answer `json:"answer,omitempty"`
	API    *API    `json:"api,omitempty"`

	Runtime   *inventory.Runtime   `json:"runtime,omitempty"`
	Sandbox   *inventory.Sandbox   `json:"sandbox,omitempty"`   // is new or has changed
	Container *inventory.Container `json:"container,omitempty"` // likewise
	Image     *inventory.Image     `json:"image,omitempty"`     // likewise
	Layers    []inventory.Layer    `json:"layers,omitempty"`    // that have changed, of containers that were sent
	// Dropped is the id of a sandbox, container or image that is no longer there.
	Dropped string `json:"dropped,omitempty"`
	// Listed: all that the runtime has has been sent at least once.
	Listed bool  `json:"listed,omitempty"`
	Done   *Done `json:"done,omitempty"`

	Runc *RuncContainers `json:"bare,omitempty"`
}

// API is the state of the agent's connection to the API server.
type API struct {
	Connected bool      `json:"connected"` // whether the last request was answered
	Since     time.Time `json:"since,omitzero"`
	Error     string    `json:"error,omitempty"` // of the last request; "" if it was answered
	// Refused has the error of each right that the API server denies, by its name.
	Refused map[string]string `json:"refused,omitempty"`
	// Conflict names another writer of the node's conditions; "" if there is none.
	Conflict string `json:"conflict,omitempty"`
	// Requests counts requests by status code; "0" are those without an answer.
	Requests map[string]uint64 `json:"requests,omitempty"`
}

// RuncContainers are all the containers that runc runs on this host. They replace those of
// the message before.
type RuncContainers struct {
	Containers []inventory.RuncContainer `json:"containers,omitempty"`
}

// Answer is what became of an Ask.
type Answer struct {
	UID types.UID `json:"uid"`
	// Refused says why the pod may not go yet; empty where it may.
	Refused string `json:"refused,omitempty"`
}

const (
	// maxMessage bounds a message, bytes: an API object is at most 1.5 MiB.
	maxMessage = 4 << 20
	// writePatience is how long the other side may take to read.
	writePatience = 10 * time.Second
	// Silence is how long evictd believes in an agent that says nothing.
	Silence = time.Minute
)

// Conn is one end of the line. One goroutine may send while another receives.
type Conn[Out, In any] struct {
	conn    net.Conn
	lines   *bufio.Scanner
	silence time.Duration
}

// Evictd is evictd's end of the line and Agent the other one.
type (
	Evictd = Conn[Down, Up]
	Agent  = Conn[Up, Down]
)

// NewConn speaks over a connection. Receive fails after silence without a
// message; zero waits without end.
func NewConn[Out, In any](conn net.Conn, silence time.Duration) *Conn[Out, In] {
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 4096), maxMessage)
	return &Conn[Out, In]{conn: conn, lines: lines, silence: silence}
}

// Send writes a message, and fails where the other side does not read for 10 s.
func (c *Conn[Out, In]) Send(m Out) error {
	line, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	if len(line) >= maxMessage {
		return fmt.Errorf("write message: %d bytes are more than %d", len(line), maxMessage)
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(writePatience)); err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return nil
}

// Receive reads the next message. It is io.EOF where the other side has closed
// the line in order.
func (c *Conn[Out, In]) Receive() (m In, err error) {
	if c.silence > 0 {
		if err := c.conn.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
			return m, fmt.Errorf("read message: %w", err)
		}
	}
	for more := true; more; more = len(c.lines.Bytes()) == 0 { // the opening
		if !c.lines.Scan() {
			err := c.lines.Err()
			if err == nil || errors.Is(err, net.ErrClosed) {
				return m, io.EOF
			}
			return m, fmt.Errorf("read message: %w", err)
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(c.lines.Bytes()))
	if err := decoder.Decode(&m); err != nil {
		return m, fmt.Errorf("read message: %w", err)
	}
	return m, nil
}

// Close ends the line; the other side then receives io.EOF.
func (c *Conn[Out, In]) Close() error { return c.conn.Close() }
