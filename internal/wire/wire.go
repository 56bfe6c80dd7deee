// Package wire is the protocol between evictd and its agent, the process that connects to
// the API server and the container runtime: JSON messages, one a line, over a stream
// socket. It imports neither a client nor a server.
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
	"github.com/evictd/evictd/internal/jsonsize"
)

// AgentFD is the descriptor of the agent's connection to evictd, also where a service manager has
// started the agent (sd_listen_fds(3)).
const AgentFD = 3

// ToAgent is one message to the agent: exactly one field is set. The first one is
// Node. A later message of the same kind, and id, replaces an earlier one.
type ToAgent struct {
	Node            *Node            `json:"node,omitempty"`
	Conditions      *NodeConditions  `json:"standing,omitempty"`
	Headroom        *Headroom        `json:"headroom,omitempty"`
	Intent          *Intent          `json:"intent,omitempty"`
	EvictionRequest *EvictionRequest `json:"ask,omitempty"`
	Event           *Event           `json:"event,omitempty"`
	Resize          *Resize          `json:"resize,omitempty"`
	Order           *Order           `json:"order,omitempty"`
	// RemoveLeftover asks for what Node.RemoveLeftover has the agent do at its start.
	RemoveLeftover bool `json:"removeLeftover,omitempty"`
	// Refresh asks for figures of the runtime that are younger than the message.
	Refresh bool `json:"look,omitempty"`
}

// Node is what does not change while evictd runs.
type Node struct {
	Name string `json:"name"`
	Mode string `json:"mode"` // name of a nodestatus.Mode
	// Publish is false where the agent only reads.
	Publish bool `json:"publish"`
	// RemoveLeftover has the agent remove at its start what an evictd of another mode and, if Publish is
	// false, of any mode has written to the Node.
	RemoveLeftover bool `json:"removeLeftover,omitempty"`
	// Register has evictd register the Node: no kubelet does.
	Register              bool            `json:"register"`
	Capacity, Allocatable v1.ResourceList `json:",omitempty"`
	// EvictedPodTTL and EvictedPodsPerOwner bound the evicted pods that the API server keeps, where
	// evictd registers the Node; zero is no bound.
	EvictedPodTTL       time.Duration `json:"evictedPodTTL,omitempty"`
	EvictedPodsPerOwner int32         `json:"evictedPodsPerOwner,omitempty"`
	// StatusFrequency is how often the node's status is compared with what it should be.
	StatusFrequency time.Duration `json:"statusFrequency"`
	// Kubeconfig and Server name the API server of an agent without flags of its own.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Server     string `json:"server,omitempty"`
	// Runc says that containers run by runc itself are to be found, in RuncState:
	// patterns of directories, none being the usual ones.
	Runc      bool     `json:"runc,omitempty"`
	RuncState []string `json:"runcState,omitempty"`
}

// NodeConditions are the conditions as of a pass.
type NodeConditions struct {
	At         Instant            `json:"at"` // of the pass
	Conditions []v1.NodeCondition `json:"conditions"`
	Raised     [4]bool            `json:"raised"` // in the order of eviction.Condition
}

// Headroom is the value of nodestatus.HeadroomAnnotation.
type Headroom struct {
	Annotation string `json:"annotation"`
	// Urgent: a level has changed since the last one.
	Urgent bool `json:"urgent"`
}

// Intent is the state of one eviction. It is kept and sent again until the agent has
// reported all of it to the API server.
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
	// Requested: the pod is deleted by the Eviction API, and its status needs no report
	// unless Override is set.
	Requested bool `json:"asked,omitempty"`
	// Override says why the pod is evicted although the Eviction API has not granted it.
	Override string `json:"override,omitempty"`
	// Overdue: the pod has outlived its grace period.
	Overdue bool `json:"overdue,omitempty"`
	// Ended is when no process of the pod was left, or the kill was given up; zero before.
	Ended time.Time `json:"over,omitzero"`
}

// EvictionRequest is a request to the Eviction API for a pod that disruption budgets may
// protect. It is repeated until it is granted or Deadline has passed.
type EvictionRequest struct {
	UID          types.UID `json:"uid"`
	Pod          string    `json:"pod"` // namespace/name
	GraceSeconds int64     `json:"graceSeconds"`
	Deadline     Instant   `json:"deadline"`
	// Delete: the pod is deleted instead, whatever budgets protect it.
	Delete bool `json:"delete,omitempty"`
	// Object: an EvictionRequest of lifecycle.k8s.io is made instead, where the API server has them. Withdrawn
	// withdraws it, and the eviction is forgotten.
	Object    bool `json:"object,omitempty"`
	Withdrawn bool `json:"withdrawn,omitempty"`
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

// Resize is a request to raise the memory limit of a container of a pod, bytes. It is sent once.
type Resize struct {
	PodName
	Container string `json:"container"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	// Requests says that the memory request is raised to the same amount.
	Requests bool `json:"requests,omitempty"`
	// Note of the event about it.
	Note string `json:"note"`
}

// PodName is what an event needs to know of a pod.
type PodName struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
}

// FromAgent is one message from the agent: exactly one field is set.
type FromAgent struct {
	Pod     *v1.Pod   `json:"pod,omitempty"`  // is new or has changed
	Deleted types.UID `json:"gone,omitempty"` // this pod is no longer of the node
	Evicted *Evicted  `json:"evicted,omitempty"`
	// Synced: all pods of the node have been sent at least once.
	Synced           bool              `json:"synced,omitempty"`
	Reported         string            `json:"told,omitempty"` // the id of an intent of which everything is reported
	EvictionResponse *EvictionResponse `json:"answer,omitempty"`
	API              *API              `json:"api,omitempty"`

	Runtime   *inventory.Runtime   `json:"runtime,omitempty"`
	Sandbox   *inventory.Sandbox   `json:"sandbox,omitempty"`   // is new or has changed
	Container *inventory.Container `json:"container,omitempty"` // likewise
	Image     *inventory.Image     `json:"image,omitempty"`     // likewise
	Layers    []inventory.Layer    `json:"layers,omitempty"`    // that have changed, of containers that were sent
	// Removed is the id of a sandbox, container or image that no longer exists.
	Removed string `json:"dropped,omitempty"`
	// Listed: everything that the runtime has was sent at least once.
	Listed bool  `json:"listed,omitempty"`
	Done   *Done `json:"done,omitempty"`

	Runc *RuncContainers `json:"bare,omitempty"`
}

// Evicted is a pod that the API server shows as evicted, by the kubelet or by evictd.
type Evicted struct {
	PodName
	At       time.Time       `json:"at"` // to the second
	Resource v1.ResourceName `json:"resource"`
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

// EvictionResponse is the answer to an EvictionRequest.
type EvictionResponse struct {
	UID types.UID `json:"uid"`
	// Refused says why the pod may not be evicted yet; empty where it may.
	Refused string `json:"refused,omitempty"`
	// Withdrawn says that the request is withdrawn: nothing is granted.
	Withdrawn bool `json:"withdrawn,omitempty"`
}

const (
	// maxMessage bounds a message, bytes: an API object is at most 1.5 MiB.
	maxMessage = 4 << 20
	// maxObjects bounds the JSON objects and arrays of a message: each may take a kilobyte when it is decoded. A pod has
	// a few thousand at most, the containers of a host that are listed in one message one each.
	maxObjects = 20_000
	// writePatience is how long the other process may take to read.
	writePatience = 10 * time.Second
	// AgentTimeout is how long an agent that sends nothing counts as alive.
	AgentTimeout = time.Minute
)

// Conn is one end of the connection. One goroutine may send while another receives.
type Conn[Out, In any] struct {
	conn    net.Conn
	lines   *bufio.Scanner
	silence time.Duration
}

// Evictd is evictd's end of the connection, and Agent the other one.
type (
	Evictd = Conn[ToAgent, FromAgent]
	Agent  = Conn[FromAgent, ToAgent]
)

// NewConn sends and receives over a socket. Receive fails after silence without a
// message; zero waits without end.
func NewConn[Out, In any](conn net.Conn, silence time.Duration) *Conn[Out, In] {
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 4096), maxMessage)
	return &Conn[Out, In]{conn: conn, lines: lines, silence: silence}
}

// Send writes a message. It fails where the other process does not read for 10 s.
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

// Receive reads the next message. The error is io.EOF after the other process has closed
// the connection.
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
	if n, _ := jsonsize.Count(c.lines.Bytes()); n > maxObjects {
		return m, fmt.Errorf("read message: %d objects and arrays are more than %d", n, maxObjects)
	}
	decoder := json.NewDecoder(bytes.NewReader(c.lines.Bytes()))
	if err := decoder.Decode(&m); err != nil {
		return m, fmt.Errorf("read message: %w", err)
	}
	return m, nil
}

// Received is the size of the message that was read last, bytes.
func (c *Conn[Out, In]) Received() int { return len(c.lines.Bytes()) }

// Close closes the connection; the other process then receives io.EOF.
func (c *Conn[Out, In]) Close() error { return c.conn.Close() }
