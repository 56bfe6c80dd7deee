// Kubelet-eviction runs the kubelet's eviction manager on worlds that are described to it, for
// tests. It reads a question as a line of JSON, and writes a line with an answer for each pass of
// the manager, until its input ends.
//
// The clock, the statistics, the pods, what kills them, what removes images and dead containers, are
// those of the question. Thresholds that act and the ranking are taken from the manager's log.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	in.DisallowUnknownFields()
	var w *inputs
	for {
		var q question
		err := in.Decode(&q)
		if errors.Is(err, io.EOF) {
			return
		}
		var answers []answer
		if err == nil {
			if q.Inputs != nil {
				w = q.Inputs
				w.complete()
			}
			answers, err = w.answers(&q.view)
		}
		if err == nil {
			err = out.Encode(answers)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "kubelet-eviction:", err)
			os.Exit(1)
		}
	}
}
