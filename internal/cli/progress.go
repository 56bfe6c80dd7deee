package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// Terminal says whether out is a terminal that may be drawn on: none that is dumb.
func Terminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Colour says whether out is a Terminal and NO_COLOR is not set
// (https://no-color.org).
func Colour(out io.Writer) bool { return Terminal(out) && os.Getenv("NO_COLOR") == "" }

// Progress writes lines, and where it draws keeps a bar below the last of them. One
// goroutine at a time may use it.
type Progress struct {
	out  io.Writer
	draw bool
	bar  string // as it stands there; empty for none

	What string // what is counted or running
}

// NewProgress counts what is done, such as "pods gone"; it draws only where out
// is a Terminal.
func NewProgress(out io.Writer, draw bool, what string) *Progress {
	return &Progress{out: out, draw: draw, What: what}
}

// erase clears the line that the cursor is in (ECMA-48, EL).
const erase = "\r\x1b[K"

// Printf writes a line.
func (p *Progress) Printf(format string, args ...any) {
	line := fmt.Sprintf(format, args...) + "\n"
	if p.bar != "" {
		line = erase + line + p.bar
	}
	fmt.Fprint(p.out, line)
}

// Set moves the bar to done of all.
func (p *Progress) Set(done, all int) {
	if !p.draw || all <= 0 {
		return
	}
	const width = 32
	full := width * min(max(done, 0), all) / all
	bar := fmt.Sprintf("[%s%s] %d/%d %s", strings.Repeat("#", full), strings.Repeat("-", width-full), done, all, p.What)
	if bar != p.bar {
		p.bar = bar
		fmt.Fprint(p.out, erase+bar)
	}
}

// End takes the bar away.
func (p *Progress) End() {
	if p.bar != "" {
		fmt.Fprint(p.out, erase)
		p.bar = ""
	}
}
