// Kubelet-config loads configurations as a kubelet does when it starts (cmd/kubelet/app), for tests. It
// reads a question as a line of JSON, and writes a line with the configuration that the kubelet would
// run with, until its input ends.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// question is what a kubelet is started with.
type question struct {
	Base    string   // the file of --config; empty for a kubelet without one
	DropIns []string // the files of --config-dir, in their order; nil for a kubelet without one
	Flags   []string
}

// answer is what the kubelet runs with, or why it does not start.
type answer struct {
	Config *kubeletconfig.KubeletConfiguration
	Error  string
}

func main() {
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	in.DisallowUnknownFields()
	for {
		var q question
		err := in.Decode(&q)
		if errors.Is(err, io.EOF) {
			return
		}
		var a answer
		if err == nil {
			if a.Config, err = q.load(); err != nil {
				a.Error, err = err.Error(), nil
			}
			err = out.Encode(a)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "kubelet-config:", err)
			os.Exit(1)
		}
	}
}
