// Benchsummary turns the output of `go test -bench -benchmem` into what a person
// wants to read: per package a line for each benchmark, and a table for one that
// runs with several numbers of nodes. Times are of the processor where a benchmark
// reports them, else what has passed. What is no result, such as a failure, passes
// through.
//
//	go test -run '^$' -bench . -benchmem ./... | go run ./internal/benchsummary
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
		fmt.Fprintln(os.Stderr, "benchsummary:", err)
		os.Exit(1)
	}
}
