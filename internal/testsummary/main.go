// Testsummary turns the output of `go test -json` into what a person wants to
// read: a line with the time of each package as it ends, the whole output of
// what failed, and at the end what was skipped and why, what failed, and a line
// of the form "N passed, N failed, N skipped".
//
// It never judges: the exit code of the run is go test's own. Testsummary fails
// only where it cannot read its input or write its output.
//
//	go test -json ./... | go run ./internal/testsummary
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
)

func main() {
	var module string
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Path
	}
	out := bufio.NewWriter(os.Stdout)
	if err := summarize(os.Stdin, out, module); err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		os.Exit(1)
	}
}
