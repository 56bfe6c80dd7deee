// Package console writes the lines, tables and bars of the playground's demo scripts to a
// terminal. It knows nothing of pods and nodes.
package console

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/evictd/evictd/internal/cli"
)

// Errors that end a demo script.
var (
	ErrInterrupted = errors.New("interrupted")
	ErrNotHeld     = errors.New("not everything held")
)

// MiB is 2^20 bytes.
const MiB = 1 << 20

// Printer writes a demo script: a line an event, with the seconds since the start, and on
// a terminal how far it has come. One goroutine at a time may use it.
type Printer struct {
	progress *cli.Progress
	began    time.Time
	colour   bool
}

// margin is what stands before the text of a line.
const margin = "                      "

// NewPrinter writes in colour where out shows any.
func NewPrinter(out *os.File) *Printer {
	return &Printer{cli.NewProgress(out, cli.Terminal(out), ""), time.Now(), cli.Colour(out)}
}

// Step shows what happens now, after so many of all steps.
func (t *Printer) Step(done, all int, what string) {
	t.progress.What = what
	t.progress.Set(done, all)
}

// Done says that there is no further step.
func (t *Printer) Done() { t.progress.End() }

// Colour is an SGR parameter (ECMA-48).
type Colour string

// The colours: of the playground's own words, of what is wrong, of what is right
// again, of what is being done about it, of what is set up.
const (
	Bold   Colour = "1"
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
	Blue   Colour = "34"
)

func (t *Printer) paint(colour Colour, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + string(colour) + "m" + text + "\x1b[0m"
}

// Print writes what happened to a subject at a time.
func (t *Printer) Print(at time.Time, colour Colour, subject, format string, args ...any) {
	t.progress.Printf("%8.3fs  %s %s", at.Sub(t.began).Seconds(), t.paint(colour, fmt.Sprintf("%-10s", subject)), fmt.Sprintf(format, args...))
}

// More continues below the last line.
func (t *Printer) More(format string, args ...any) {
	t.progress.Printf(margin+format, args...)
}

// Table continues below the last line, the first row being the head.
func (t *Printer) Table(rows [][]string) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush()
	colour := Bold
	for line := range strings.Lines(text.String()) {
		line = strings.TrimRight(line, " \n")
		if colour != "" {
			line, colour = t.paint(colour, line), ""
		}
		t.More("%s", line)
	}
}

// Bar shows how much of a node is in use, and where its threshold is; all in
// bytes.
func (t *Printer) Bar(available, capacity, threshold int64) string {
	const width = 48
	at := func(bytes int64) int { return int(min(max(bytes, 0), capacity) * width / capacity) }
	used, mark := at(capacity-available), at(capacity-threshold)
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
	return "[" + t.paint(map[bool]Colour{false: Green, true: Red}[used > mark], b.String()) + "]"
}

// Claim is what must hold at the end of a demo script.
type Claim struct {
	Text string
	Held bool
}

// Judge writes the claims. It is ErrNotHeld where one did not hold.
func (t *Printer) Judge(claims []Claim) (err error) {
	for _, c := range claims {
		mark := t.paint(Green, "yes")
		if !c.Held {
			mark, err = t.paint(Red, "NO "), ErrNotHeld
		}
		t.More("%s  %s", mark, c.Text)
	}
	return err
}

// Span writes a duration with a tenth of a millisecond, or of a second where it
// takes that long.
func Span(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// Size writes bytes as whole MiB.
func Size(bytes int64) string { return strconv.FormatInt(bytes/MiB, 10) + "Mi" }

// Patience bounds every wait of the playground. No wait comes near it, however busy the
// machine is, unless something has failed.
const Patience = 2 * time.Minute
