package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is the part of a TestEvent (`go doc cmd/test2json`) that a skip needs.
type event struct {
	Action, Package, Test, Output string
}

// countSkips adds the skipped tests of a run of `go test -json` to count, by reason, and the names of those
// that passed to passed. Lines that are not JSON are ignored.
func countSkips(in io.Reader, count map[string]int, passed map[string]bool) error {
	outputs := map[[2]string]*strings.Builder{} // of a test, by package and name
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read test events: %w", err)
		}
		var e event
		if json.Unmarshal(bytes.TrimSpace(line), &e) == nil && e.Test != "" {
			test := [2]string{e.Package, e.Test}
			switch e.Action {
			case "output":
				if outputs[test] == nil {
					outputs[test] = &strings.Builder{}
				}
				outputs[test].WriteString(e.Output)
			case "skip":
				text := ""
				if outputs[test] != nil {
					text = outputs[test].String()
				}
				count[reason(text)]++
				delete(outputs, test)
			case "pass", "fail":
				passed[e.Test] = e.Action == "pass"
				delete(outputs, test)
			}
		}
		if err != nil {
			return nil
		}
	}
}

// writeSkips writes a line for each reason: the number of skipped tests and the reason,
// the most frequent first. It writes nothing where no test was skipped.
func writeSkips(out io.Writer, count map[string]int) {
	if len(count) > 0 {
		fmt.Fprintln(out, "\nskipped, by reason:")
	}
	byCount := func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b)) }
	for _, reason := range slices.SortedFunc(maps.Keys(count), byCount) {
		fmt.Fprintf(out, "%5d  %s\n", count[reason], reason)
	}
}

// logged is a line that testing.T.Log writes.
var logged = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)$`)

// reason is the last entry that a test logged before it was skipped, without the
// prefix "skipped: ". An entry of several lines becomes one line.
func reason(output string) string {
	var entry []string
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\n")
		if found := logged.FindStringSubmatch(line); found != nil {
			entry = []string{strings.TrimPrefix(found[1], "skipped: ")}
		} else if len(entry) > 0 && strings.HasPrefix(line, "        ") {
			entry = append(entry, strings.TrimSpace(line))
		}
	}
	return cmp.Or(strings.Join(entry, " "), "no reason given")
}
