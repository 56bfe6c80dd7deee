package docs_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A page is read by these rules. A block of commands is an indented one, or one
// fenced as console or sh. Where a line of it begins with "$ ", it is a session:
// such lines are commands, the others what they print. Otherwise each line is a
// command, and what it prints is not held against anything. A block that is fenced
// with a language and a name, as ```yaml pod.yaml, is a file of that name.
//
// Of what is printed a line "..." stands for any lines, and "..." within a line for
// any text. Marks are comments in lines of their own before a block:
//
//	<!-- not run: REASON -->           none of its commands is run
//	<!-- not run, PREFIX: REASON -->   nor those that begin with PREFIX
//	<!-- figures vary -->              words that begin with a digit stand for any such, bars for any bar
//	<!-- until shown -->               a command is repeated until it prints what is shown
//	<!-- on a terminal -->             it is what the terminal shows of each command
type block struct {
	line     int    // of the page, from 1 on
	file     string // its name; "" for commands
	text     string // of the file
	session  bool
	commands []command
	marks
}

type command struct {
	line  int // of its first line
	text  string
	print span // what it prints, in a session
}

// span is lines of a page, from the first to before the end, counted from 0.
type span struct{ from, end int }

// marks are what stands in comments before a block.
type marks struct {
	skips      []skip
	figures    bool
	untilShown bool
	terminal   bool
}

type skip struct{ prefix, reason string }

// notRun is why a command is not; "" where it is.
func (m marks) notRun(command string) string {
	for _, s := range m.skips {
		if strings.HasPrefix(command, s.prefix) {
			return s.reason
		}
	}
	return ""
}

var (
	comment = regexp.MustCompile(`^<!-- (.*) -->$`)
	notRun  = regexp.MustCompile(`^not run(?:, ([^:]+))?: (.+)$`)
)

// add adds a comment, if it is a mark.
func (m *marks) add(text string) (is bool) {
	switch text {
	case "figures vary":
		m.figures = true
	case "until shown":
		m.untilShown = true
	case "on a terminal":
		m.terminal = true
	default:
		found := notRun.FindStringSubmatch(text)
		if found == nil {
			return false
		}
		m.skips = append(m.skips, skip{found[1], found[2]})
	}
	return true
}

// page is a Markdown file.
type page struct {
	lines  []string
	indent []int // of each line of a block, which is not part of its text
	blocks []block
	faults []string
}

const tab = "    " // what indents an indented block

func readPage(text string) *page {
	p := &page{lines: strings.Split(text, "\n")}
	p.indent = make([]int, len(p.lines))
	var pending marks
	marked, blank := false, true
	for i := 0; i < len(p.lines); i++ {
		line := p.lines[i]
		if info, fenced := strings.CutPrefix(line, "```"); fenced {
			end := i + 1
			for end < len(p.lines) && p.lines[end] != "```" {
				end++
			}
			p.fenced(strings.Fields(info), span{i + 1, end}, pending, marked)
			i, pending, marked, blank = end, marks{}, false, false
			continue
		}
		if blank && strings.HasPrefix(line, tab) {
			end := i
			for end < len(p.lines) && (strings.HasPrefix(p.lines[end], tab) || p.lines[end] == "" && end+1 < len(p.lines) && strings.HasPrefix(p.lines[end+1], tab)) {
				p.indent[end] = min(len(tab), len(p.lines[end]))
				end++
			}
			p.addCommands(span{i, end}, pending)
			i, pending, marked, blank = end-1, marks{}, false, false
			continue
		}
		blank = line == ""
		if found := comment.FindStringSubmatch(line); found != nil {
			marked, blank = pending.add(found[1]) || marked, true
		} else if !blank && marked {
			p.fault(i, "a mark stands before nothing that is run")
			pending, marked = marks{}, false
		}
	}
	return p
}

func (p *page) fault(line int, what string) {
	p.faults = append(p.faults, fmt.Sprintf("%d: %s", line+1, what))
}

// fenced adds a block by the words behind its fence.
func (p *page) fenced(info []string, of span, m marks, marked bool) {
	prompt := func(line string) bool { return strings.HasPrefix(line, "$ ") }
	switch {
	case len(info) > 0 && slices.Contains([]string{"console", "sh"}, info[0]):
		p.addCommands(of, m)
	case slices.ContainsFunc(p.lines[of.from:of.end], prompt):
		p.fault(of.from, "commands stand in a block that is not fenced as console")
	case marked:
		p.fault(of.from, "a mark stands before a block that is not run")
	case len(info) > 1:
		p.blocks = append(p.blocks, block{line: of.from + 1, file: info[1], text: p.text(of)})
	}
}

// text is lines of the page without what indents them.
func (p *page) text(of span) string {
	var b strings.Builder
	for i := of.from; i < of.end; i++ {
		b.WriteString(p.lines[i][p.indent[i]:] + "\n")
	}
	return b.String()
}

// addCommands adds a block of commands. One that ends with a backslash continues in
// the next line.
func (p *page) addCommands(of span, m marks) {
	b := block{line: of.from + 1, marks: m}
	at := func(i int) string { return p.lines[i][p.indent[i]:] }
	for i := of.from; i < of.end && !b.session; i++ {
		b.session = strings.HasPrefix(at(i), "$ ")
	}
	for i := of.from; i < of.end; i++ {
		text, prompted := strings.CutPrefix(at(i), "$ ")
		if b.session && !prompted {
			if len(b.commands) == 0 {
				p.fault(i, "a session begins with no command")
				return
			}
			b.commands[len(b.commands)-1].print.end = i + 1
			continue
		}
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		c := command{line: i + 1, text: text}
		for strings.HasSuffix(c.text, "\\") && i+1 < of.end {
			i++
			c.text += "\n" + strings.TrimPrefix(at(i), "> ")
		}
		c.print = span{i + 1, i + 1}
		b.commands = append(b.commands, c)
	}
	for i, c := range b.commands { // a blank line before the next command prints nothing
		for end := c.print.end; end > c.print.from && at(end-1) == ""; end = b.commands[i].print.end {
			b.commands[i].print.end--
		}
	}
	p.blocks = append(p.blocks, b)
}

// figure is a word that begins with a digit: a quantity, a duration, a time; or a
// bar; or blanks that fill a column.
var figure = regexp.MustCompile(`\b` + number + `| {2,}|` + bar + `+`)

const (
	number = `\d[\w.:+%-]*`
	bar    = `[█▇▆▅▄▃▂▁·┃╎]`
)

// pattern is what a text must match to be what is shown.
func pattern(shown string, figures bool) *regexp.Regexp {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimRight(shown, "\n") + "\n") {
		line = strings.TrimRight(line, " \n")
		if line == "..." {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		for i, text := range strings.Split(line, "...") {
			if i > 0 {
				b.WriteString(`.*`)
			}
			if figures {
				text = varying(text)
			} else {
				text = regexp.QuoteMeta(text)
			}
			b.WriteString(text)
		}
		b.WriteString(`\n`)
	}
	return regexp.MustCompile(`^` + b.String() + `$`)
}

// varying matches a text with other figures, and other blanks around them.
func varying(text string) string {
	var b strings.Builder
	last := 0
	for _, at := range figure.FindAllStringIndex(text, -1) {
		b.WriteString(regexp.QuoteMeta(text[last:at[0]]))
		switch c := text[at[0]]; {
		case c == ' ':
			b.WriteString(` +`)
		case '0' <= c && c <= '9':
			b.WriteString(number)
		default:
			b.WriteString(bar + `+`)
		}
		last = at[1]
	}
	return b.String() + regexp.QuoteMeta(text[last:])
}

// trimmed is a text without blanks at the ends of its lines, nor blank lines at
// its own.
func trimmed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \r\n") + "\n")
	}
	if all := strings.Trim(b.String(), "\n"); all != "" {
		return all + "\n"
	}
	return "\n"
}
