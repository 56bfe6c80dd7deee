package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// result is a line of output: the figures of one benchmark by their units.
type result struct {
	name    string
	nodes   int // in its name; 0 where there is no such number
	figures map[string]float64
}

// The units that have columns of their own. Others that begin with factorOf are
// how many times faster the benchmark is than what follows.
const (
	elapsed  = "ns/op"
	worked   = "cpu-ns/op"
	bytes    = "B/op"
	allocs   = "allocs/op"
	factorOf = "x-"
)

// summary is the run so far.
type summary struct {
	out    *bufio.Writer
	module string
	group  string   // the benchmark function of table
	table  []result // with nodes, of one function
}

// summarize copies a run from in to out in readable form. Import paths lose the
// prefix module.
func summarize(in io.Reader, out *bufio.Writer, module string) error {
	s := &summary{out: out, module: module}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		s.line(lines.Text())
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read results: %w", err)
	}
	s.end()
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

func (s *summary) line(line string) {
	key, rest, _ := strings.Cut(line, ": ")
	r, ok := parse(line)
	switch {
	case ok:
		s.result(r)
	case key == "pkg":
		s.end()
		fmt.Fprintf(s.out, "\n%s\n", strings.TrimPrefix(rest, s.module+"/"))
	case key == "goos", key == "goarch", key == "cpu", line == "PASS", strings.HasPrefix(line, "ok  \t"):
	default:
		s.end()
		fmt.Fprintln(s.out, line)
	}
	s.out.Flush()
}

// parse reads a line such as
//
//	BenchmarkAttempt/basic/500_nodes-2   1000   2100 ns/op   0 B/op   0 allocs/op
func parse(line string) (r result, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 4 || !strings.HasPrefix(line, "Benchmark") {
		return result{}, false
	}
	r = result{name: strings.TrimPrefix(fields[0], "Benchmark"), figures: map[string]float64{}}
	if i := strings.LastIndexByte(r.name, '-'); i >= 0 {
		r.name = r.name[:i] // the number of processors
	}
	for i := 2; i+1 < len(fields); i += 2 {
		figure, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return result{}, false
		}
		r.figures[fields[i+1]] = figure
	}
	if i := strings.LastIndexByte(r.name, '/'); i >= 0 {
		if n, err := strconv.Atoi(strings.TrimSuffix(r.name[i+1:], "_nodes")); err == nil && strings.HasSuffix(r.name, "_nodes") {
			r.name, r.nodes = r.name[:i], n
		}
	}
	r.name = strings.ReplaceAll(r.name, "_", " ")
	return r, true
}

func (r *result) time() float64 { return cmp.Or(r.figures[worked], r.figures[elapsed]) }

func (s *summary) result(r result) {
	group, _, _ := strings.Cut(r.name, "/")
	if r.nodes == 0 || group != s.group {
		s.end()
	}
	if r.nodes > 0 {
		s.group = group
		s.note(r)
		return
	}
	fmt.Fprintf(s.out, "  %-56s %12s %12.0f B %9.0f allocs\n", r.name, duration(r.time()), r.figures[bytes], r.figures[allocs])
}

// note adds a result to the table. Of several runs the fastest stays: what else the
// machine did disturbed it the least.
func (s *summary) note(r result) {
	i := slices.IndexFunc(s.table, func(other result) bool { return other.name == r.name && other.nodes == r.nodes })
	switch {
	case i < 0:
		s.table = append(s.table, r)
	case r.time() < s.table[i].time():
		s.table[i] = r
	}
}

// duration is a time in nanoseconds with a unit that suits it.
func duration(ns float64) string {
	unit := "ns"
	for _, larger := range []string{"µs", "ms", "s"} {
		if ns < 1000 {
			break
		}
		ns, unit = ns/1000, larger
	}
	return fmt.Sprintf("%.4g %s", ns, unit)
}

// end writes the table that is open.
func (s *summary) end() {
	if len(s.table) == 0 {
		return
	}
	var names, factors []string
	var sizes []int
	for _, r := range s.table {
		names, sizes = with(names, r.name), with(sizes, r.nodes)
		for unit := range r.figures {
			if of, is := strings.CutPrefix(unit, factorOf); is {
				factors = with(factors, of)
			}
		}
	}
	slices.Sort(factors)
	head := []string{s.group + ", µs"}
	for _, n := range sizes {
		head = append(head, grouped(n)+" nodes")
	}
	head = append(append(head, "allocs"), factors...)
	rows := [][]string{head}
	for _, name := range names {
		rows = append(rows, s.row(name, sizes, factors))
	}
	write(s.out, rows)
	if len(factors) > 0 {
		fmt.Fprintln(s.out, "  (x: to a figure measured elsewhere, see docs/benchmarks.md)")
	}
	s.table = nil
}

// row has what one benchmark took by numbers of nodes, its allocations, the most
// of all, and its factors.
func (s *summary) row(name string, sizes []int, factors []string) []string {
	row := append([]string{cmp.Or(strings.TrimPrefix(name, s.group+"/"), name)}, make([]string, len(sizes)+1+len(factors))...)
	most := 0.0
	for _, r := range s.table {
		if r.name != name {
			continue
		}
		row[1+slices.Index(sizes, r.nodes)] = fmt.Sprintf("%.1f", r.time()/1000)
		most = max(most, r.figures[allocs])
		for i, of := range factors {
			if factor, is := r.figures[factorOf+of]; is {
				row[2+len(sizes)+i] = fmt.Sprintf("%.0fx", factor)
			}
		}
	}
	row[1+len(sizes)] = fmt.Sprintf("%.0f", most)
	return row
}

// with is the list with an item that was not in it.
func with[T comparable](list []T, item T) []T {
	if slices.Contains(list, item) {
		return list
	}
	return append(list, item)
}

// grouped is a number with commas between thousands.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// write aligns the first column to the left and the others to the right.
func write(out io.Writer, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		line.WriteString(fmt.Sprintf("  %-*s", widths[0], row[0]))
		for i, cell := range row[1:] {
			line.WriteString(fmt.Sprintf("  %*s", widths[i+1], cell))
		}
		fmt.Fprintln(out, strings.TrimRight(line.String(), " "))
	}
}
