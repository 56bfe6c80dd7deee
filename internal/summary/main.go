// Summary turns what `go test` writes into what a person wants to read: `summary
// tests` the events of -json, `summary bench` the results of -bench -benchmem.
// `summary failed` turns the events into what to run again.
//
// It never judges: the exit code of the run is go test's own. Summary fails only
// where it cannot read its input or write its output.
//
//	go test -json ./... | go run ./internal/summary tests
//	go test -run '^$' -bench . -benchmem ./... | go run ./internal/summary bench
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/evictd/evictd/internal/summary/bench"
	"github.com/evictd/evictd/internal/summary/failed"
	"github.com/evictd/evictd/internal/summary/tests"
)

func main() {
	summaries := map[string]func(io.Reader, *bufio.Writer, string) error{"bench": bench.Summarize, "failed": failed.List, "tests": tests.Summarize}
	if len(os.Args) != 2 || summaries[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "summary: expected bench, failed or tests")
		os.Exit(2)
	}
	var module string
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Path
	}
	if err := summaries[os.Args[1]](os.Stdin, bufio.NewWriter(os.Stdout), module); err != nil {
		fmt.Fprintln(os.Stderr, "summary:", err)
		os.Exit(1)
	}
}
