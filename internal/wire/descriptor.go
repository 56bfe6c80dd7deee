package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A connection begins with one byte, a line's end. Beside it evictd passes one end of a
// pair of sequenced-packet sockets where the agent is to connect to the container runtime, whose
// socket belongs to root: over the pair evictd passes connections to it. A request is one byte,
// then the letter of the choice and the endpoint that was used last; the response begins with
// the same byte, followed by the endpoint, beside a descriptor, or by the error.

var opening = []byte{'\n'}

// Begin begins a connection to an agent and passes its end of the pair, unless that
// is nil.
func Begin(line *net.UnixConn, dials *os.File) error {
	var rights []byte
	if dials != nil {
		rights = syscall.UnixRights(int(dials.Fd()))
	}
	if err := line.SetWriteDeadline(time.Now().Add(writePatience)); err != nil {
		return fmt.Errorf("begin the connection to the agent: %w", err)
	}
	if _, _, err := line.WriteMsgUnix(opening, rights, nil); err != nil {
		return fmt.Errorf("begin the connection to the agent: %w", err)
	}
	return nil
}

// Accept is the agent's end of the connection at AgentFD, and a dialer of the container runtime,
// which is nil without one.
func Accept() (*net.UnixConn, *Dialer, error) {
	conn, err := net.FileConn(os.NewFile(AgentFD, "evictd"))
	if err != nil {
		return nil, nil, err
	}
	line, fits := conn.(*net.UnixConn)
	if !fits {
		return nil, nil, fmt.Errorf("descriptor %d is no unix socket", AgentFD)
	}
	begins, rights := make([]byte, len(opening)), make([]byte, syscall.CmsgSpace(4))
	n, m, _, _, err := line.ReadMsgUnix(begins, rights)
	if err == nil && n == 0 {
		err = net.ErrClosed
	}
	if err != nil {
		return nil, nil, err
	}
	dials, err := received(rights[:m])
	if dials == nil || err != nil {
		return line, nil, err
	}
	return line, NewDialer(dials.(*net.UnixConn)), nil
}

// The letters of a request: the endpoint that was used last, or another one if there is any.
const (
	sameEndpoint = 's'
	nextEndpoint = 'n'
)

const (
	maxRequest  = 256  // bytes
	maxResponse = 1024 // bytes
	// dialPatience bounds a request without a deadline.
	dialPatience = 5 * time.Second
)

// OpenRuntime connects to a container runtime and returns its endpoint: to the last one that was
// used, or if next is set to another one, if there is any. It must not block for long.
type OpenRuntime func(last string, next bool) (conn *os.File, endpoint string, err error)

// ServeDials answers requests until the other process closes the connection.
func ServeDials(line *net.UnixConn, open OpenRuntime) error {
	request := make([]byte, maxRequest)
	for {
		n, _, _, _, err := line.ReadMsgUnix(request, nil)
		if err != nil || n < 2 { // a closed connection reads as an empty packet
			return err
		}
		conn, text, err := open(string(request[2:n]), request[1] == nextEndpoint)
		var rights []byte
		if err != nil {
			text = err.Error()
		} else {
			rights = syscall.UnixRights(int(conn.Fd()))
		}
		response := append(request[:1:1], text...)
		_, _, err = line.WriteMsgUnix(response[:min(len(response), maxResponse)], rights, nil)
		if conn != nil {
			conn.Close()
		}
		if err != nil {
			return fmt.Errorf("pass a connection: %w", err)
		}
	}
}

// Dialer requests connections to the container runtime from evictd.
type Dialer struct {
	mu   sync.Mutex
	line *net.UnixConn
	last byte
}

// NewDialer requests over a socket.
func NewDialer(line *net.UnixConn) *Dialer { return &Dialer{line: line} }

// Dial requests one connection as OpenRuntime opens it, and returns its endpoint. Without one the
// error is evictd's.
func (d *Dialer) Dial(ctx context.Context, last string, next bool) (conn net.Conn, endpoint string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	deadline, set := ctx.Deadline()
	if !set {
		deadline = time.Now().Add(dialPatience)
	}
	if err := d.line.SetDeadline(deadline); err != nil {
		return nil, "", fmt.Errorf("request a connection: %w", err)
	}
	d.last++
	choice := byte(sameEndpoint)
	if next {
		choice = nextEndpoint
	}
	if _, err := d.line.Write(append([]byte{d.last, choice}, last[:min(len(last), maxRequest-2)]...)); err != nil {
		return nil, "", fmt.Errorf("request a connection: %w", err)
	}
	for {
		response, rights := make([]byte, maxResponse), make([]byte, syscall.CmsgSpace(4))
		n, m, _, _, err := d.line.ReadMsgUnix(response, rights)
		if err == nil && n == 0 {
			err = net.ErrClosed
		}
		if err != nil {
			return nil, "", fmt.Errorf("request a connection: %w", err)
		}
		conn, err := received(rights[:m])
		switch text := string(response[1:n]); {
		case response[0] != d.last: // to a request that was given up
			if conn != nil {
				conn.Close()
			}
		case err != nil:
			return nil, "", fmt.Errorf("request a connection: %w", err)
		case conn == nil:
			return nil, "", errors.New(text)
		default:
			return conn, text, nil
		}
	}
}

// received is the connection that was passed with a response; nil without one.
func received(control []byte) (net.Conn, error) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fds[0]), "passed")
	defer file.Close()
	return net.FileConn(file)
}
