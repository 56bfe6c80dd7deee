package apiserver

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Peer is a running program of Program that answers questions, each a line of JSON.
type Peer struct {
	name string
	in   *json.Encoder
	out  *json.Decoder
}

// StartPeer runs the program until the test ends. It skips the test where there is none.
func StartPeer(t *testing.T, name string) *Peer {
	t.Helper()
	path, err := Program(name)
	if err != nil {
		t.Skip("skipped:", err)
	}
	cmd := exec.Command(path)
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := cmp.Or(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	return &Peer{name, json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))}
}

// Ask decodes the answer to a question. It panics where the program has ended.
func (p *Peer) Ask(question, answer any) {
	if err := p.in.Encode(question); err != nil {
		panic(fmt.Errorf("ask %s: %w", p.name, err))
	}
	if err := p.out.Decode(answer); err != nil {
		panic(fmt.Errorf("read the answer of %s: %w", p.name, err))
	}
}
