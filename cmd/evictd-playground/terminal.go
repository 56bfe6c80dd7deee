package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// teller writes the story: a line an event, with the seconds since the start.
type teller struct {
	out    io.Writer
	began  time.Time
	colour bool
}

// margin is what stands before the text of a line.
const margin = "                      "

// newTeller writes in colour where out is a terminal (https://no-color.org).
func newTeller(out *os.File) *teller {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &teller{out, time.Now(), terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// The colours, as SGR parameters (ECMA-48).
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	dim    = "2"
)

func (t *teller) paint(colour, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// tell writes what happened to a subject at a time.
func (t *teller) tell(at time.Time, colour, subject, format string, args ...any) {
	fmt.Fprintf(t.out, "%8.3fs  %s %s\n", at.Sub(t.began).Seconds(), t.paint(colour, fmt.Sprintf("%-10s", subject)), fmt.Sprintf(format, args...))
}

// more goes on below the last line.
func (t *teller) more(format string, args ...any) {
	fmt.Fprintf(t.out, margin+format+"\n", args...)
}

// table goes on below the last line, the first row being the head.
func (t *teller) table(rows [][]string) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush()
	colour := bold
	for line := range strings.Lines(text.String()) {
		line = strings.TrimRight(line, " \n")
		if colour != "" {
			line, colour = t.paint(colour, line), ""
		}
		t.more("%s", line)
	}
}

// bar shows how much of the node is in use, and where the threshold is.
func (t *teller) bar(available int64) string {
	const width = 48
	at := func(bytes int64) int { return int(min(max(bytes, 0), nodeMemory) * width / nodeMemory) }
	used, mark := at(nodeMemory-available), at(nodeMemory-threshold)
	var b strings.Builder
	for i := range width {
		switch {
		case i == mark:
			b.WriteByte('|')
		case i < used:
			b.WriteByte('#')
		default:
			b.WriteByte('-')
		}
	}
	return "[" + t.paint(map[bool]string{false: green, true: red}[used > mark], b.String()) + "]"
}

// milliseconds writes a duration with a tenth of a millisecond.
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
