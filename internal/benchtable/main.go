// Benchtable turns the output of `go test -bench -benchmem` into a line for each
// benchmark of a package, and a table for a benchmark that runs with several numbers of
// nodes. Times are processor times where a benchmark reports them, else elapsed times.
// Lines that are not results, such as failures, are printed unchanged.
//
//	go test -run '^$' -bench . -benchmem ./... | go run ./internal/benchtable
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
	if err := summarize(os.Stdin, bufio.NewWriter(os.Stdout), module); err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
}
