// Package podprocess runs the process of a pod's container: the program and arguments of
// `evictd-playground pod`, which allocates memory on a signal or after a time.
package podprocess

import (
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/evictd/evictd/internal/process"
)

// Process is the process of a container. It is killed with this process.
type Process struct {
	*process.Process
	commands io.Writer
	replies  io.Reader
}

// Start starts a program with its first arguments, and more. The process waits for Fill, so
// that it can be placed in its cgroup before it takes memory.
func Start(program []string, args ...string) (*Process, error) {
	cmd := exec.Command(program[0], append(program[1:len(program):len(program)], args...)...)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	p := &Process{}
	var err error
	if p.commands, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.replies, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	p.Process, err = process.Start(cmd)
	return p, err
}

// Fill has the process take what it holds, and waits until it has, or has ended.
func (p *Process) Fill() error {
	_, err := p.commands.Write([]byte{'\n'})
	if err == nil {
		_, err = io.ReadFull(p.replies, make([]byte, 1))
	}
	if err != nil {
		return fmt.Errorf("fill process %d: %w", p.PID(), err)
	}
	return nil
}
