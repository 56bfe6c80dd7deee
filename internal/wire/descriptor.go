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

// A line begins with one byte, a line's end, which nobody else reads. Beside it
// evictd hands over the agent's end of a pair of sequenced-packet sockets, where
// the agent is to speak to the container runtime: over it evictd hands it
// connections to the runtime, whose socket belongs to root. A request is one byte,
// any; the answer begins with the same byte, and goes on with the endpoint, beside
// a descriptor, or with why there is none.

var opening = []byte{'\n'}

// Greet begins a line to an agent and hands over its end of the pair, unless that
// is nil. The agent may take as long as a message may.
func Greet(line *net.UnixConn, dials *os.File) error {
	var rights []byte
	if dials != nil {
		rights = syscall.UnixRights(int(dials.Fd()))
	}
	if err := line.SetWriteDeadline(time.Now().Add(writePatience)); err != nil {
		return fmt.Errorf("greet the agent: %w", err)
	}
	if _, _, err := line.WriteMsgUnix(opening, rights, nil); err != nil {
		return fmt.Errorf("greet the agent: %w", err)
	}
	return nil
}

// Meet is the agent's end of the line at FD, and of the pair; nil where it is not
// to speak to the container runtime.
func Meet() (*net.UnixConn, *Dialer, error) {
	conn, err := net.FileConn(os.NewFile(FD, "evictd"))
	if err != nil {
		return nil, nil, err
	}
	line, fits := conn.(*net.UnixConn)
	if !fits {
		return nil, nil, fmt.Errorf("descriptor %d is no unix socket", FD)
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

const (
	maxAnswer = 1024 // bytes
	// dialPatience bounds a request that comes with no deadline.
	dialPatience = 5 * time.Second
)

// ServeDials answers requests until the other side closes the line. Open connects to
// the runtime and names the endpoint; it must not wait for long.
func ServeDials(line *net.UnixConn, open func() (conn *os.File, endpoint string, err error)) error {
	request := make([]byte, 1)
	for {
		n, _, _, _, err := line.ReadMsgUnix(request, nil)
		if err != nil || n == 0 { // a closed line reads as an empty packet
			return err
		}
		conn, text, err := open()
		var rights []byte
		if err != nil {
			text = err.Error()
		} else {
			rights = syscall.UnixRights(int(conn.Fd()))
		}
		answer := append(request[:1:1], text...)
		_, _, err = line.WriteMsgUnix(answer[:min(len(answer), maxAnswer)], rights, nil)
		if conn != nil {
			conn.Close()
		}
		if err != nil {
			return fmt.Errorf("hand over a connection: %w", err)
		}
	}
}

// Dialer is the agent's side: it asks evictd for connections.
type Dialer struct {
	mu   sync.Mutex
	line *net.UnixConn
	last byte
}

// NewDialer asks over a line.
func NewDialer(line *net.UnixConn) *Dialer { return &Dialer{line: line} }

// Dial asks for one connection and says to what endpoint it is. Without one the
// error is evictd's.
func (d *Dialer) Dial(ctx context.Context) (conn net.Conn, endpoint string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	deadline, set := ctx.Deadline()
	if !set {
		deadline = time.Now().Add(dialPatience)
	}
	if err := d.line.SetDeadline(deadline); err != nil {
		return nil, "", fmt.Errorf("ask for a connection: %w", err)
	}
	d.last++
	if _, err := d.line.Write([]byte{d.last}); err != nil {
		return nil, "", fmt.Errorf("ask for a connection: %w", err)
	}
	for {
		answer, rights := make([]byte, maxAnswer), make([]byte, syscall.CmsgSpace(4))
		n, m, _, _, err := d.line.ReadMsgUnix(answer, rights)
		if err == nil && n == 0 {
			err = net.ErrClosed
		}
		if err != nil {
			return nil, "", fmt.Errorf("ask for a connection: %w", err)
		}
		conn, err := received(rights[:m])
		switch text := string(answer[1:n]); {
		case answer[0] != d.last: // of a request that was given up
			if conn != nil {
				conn.Close()
			}
		case err != nil:
			return nil, "", fmt.Errorf("ask for a connection: %w", err)
		case conn == nil:
			return nil, "", errors.New(text)
		default:
			return conn, text, nil
		}
	}
}

// received is the connection that came with an answer; nil where none did.
func received(control []byte) (net.Conn, error) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fds[0]), "handed over")
	defer file.Close()
	return net.FileConn(file)
}
