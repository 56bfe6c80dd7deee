package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/nodestatus/render"
	"github.com/evictd/evictd/stats"
)

var (
	plain  = tcell.StyleDefault
	head   = plain.Bold(true)
	dim    = plain.Dim(true)
	good   = plain.Foreground(tcell.ColorGreen)
	warned = plain.Foreground(tcell.ColorYellow)
	bad    = plain.Foreground(tcell.ColorRed).Bold(true)
)

// pen writes into a screen from the top down.
type pen struct {
	tcell.Screen
	width, height, x, y int
}

func (p *pen) put(style tcell.Style, text string) {
	for _, r := range text {
		if p.x < p.width && p.y < p.height {
			p.SetContent(p.x, p.y, r, nil, style)
		}
		p.x++
	}
}

// narrow says whether there is no room for more than the essential.
func (p *pen) narrow() bool { return p.width < 100 }

func (p *pen) line() { p.x, p.y = 0, p.y+1 }

func (v *view) draw(screen tcell.Screen) {
	screen.Clear()
	p := &pen{Screen: screen}
	p.width, p.height = screen.Size()
	v.drawHead(p)
	limits := 0 // of the widest of them
	for i := range v.status.Signals {
		n := 0
		for _, t := range v.status.Signals[i].Thresholds {
			n += len(limit(v.status.Signals[i].Name, &t))
		}
		limits = max(limits, n)
	}
	for i := range v.status.Signals {
		v.drawSignal(p, &v.status.Signals[i], limits)
	}
	v.drawEviction(p)
	p.line()
	if v.story != nil {
		v.drawStory(p)
	} else {
		v.drawPods(p)
	}
	p.x, p.y = 0, p.height-1
	v.drawFoot(p)
}

func (v *view) drawHead(p *pen) {
	s := &v.status
	if s.Node == "" {
		p.put(head, "evictd")
	} else {
		p.put(head, fmt.Sprintf("%s  %s  %s", s.Node, s.Mode, s.Time.UTC().Format(time.TimeOnly)))
	}
	conditions := s.Conditions
	if s.WouldBe != nil {
		p.put(warned, "  dry run, would be:")
		conditions = s.WouldBe.Conditions
	}
	if p.narrow() {
		p.line()
	}
	for _, c := range conditions {
		style := good
		if c.Status == "True" {
			style = bad.Reverse(true)
		}
		if p.x > 0 {
			p.put(plain, "  ")
		}
		// The mode says whose they are.
		p.put(style, fmt.Sprintf("%s=%s", strings.TrimPrefix(string(c.Type), "evictd.io/"), c.Status))
	}
	p.line()
	if v.err != nil {
		p.put(bad, v.err.Error())
	}
	p.line()
}

// span writes seconds, with a tenth where there are few of them.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func limit(signal string, t *nodestatus.ThresholdStatus) string {
	text := " " + t.Kind + " " + render.Short(signal, t.Quantity)
	if t.Met {
		text += " MET"
	}
	return text
}

// drawEviction shows the last one.
func (v *view) drawEviction(p *pen) {
	all := v.status.Evictions
	if v.status.WouldBe != nil {
		all = v.status.WouldBe.Evictions
	}
	if len(all) == 0 {
		return
	}
	if p.height > 20 {
		p.line()
	}
	last := &all[len(all)-1]
	what, end, style := "evicted", "is being ended", bad
	if v.status.WouldBe != nil {
		what, end, style = "would have evicted", "dry run", warned
	} else if !last.Gone.IsZero() {
		end, style = render.Gain(last.Signal, last.Freed, last.Held), warned
	}
	p.put(style, fmt.Sprintf("  %s %s %s ago for %s, %s", what, last.Pod, v.status.Time.Sub(last.Decided.Time).Round(time.Second), last.Signal, end))
	if last.Because != "" {
		p.put(dim, ": "+last.Because)
	}
	p.line()
}

// drawSignal draws what is available of a signal as a bar, with its thresholds in
// it: ┃ hard, ╎ soft.
func (v *view) drawSignal(p *pen, s *nodestatus.SignalStatus, limits int) {
	mark, style := "  ", good
	if s.Name == v.signal {
		mark = "▶ "
	}
	for _, t := range s.Thresholds {
		switch {
		case t.Met && t.Kind == "hard":
			style = bad
		case t.Met && style != bad:
			style = warned
		}
	}
	p.put(head, mark+fmt.Sprintf("%-28s", s.Name))
	width := min(40, p.width/5)
	if p.narrow() {
		width = 10
	}
	v.drawBar(p, s, width, style)
	p.put(style, fmt.Sprintf(" %8s", cmp.Or(render.Short(s.Name, s.Available), "-")))
	if !p.narrow() {
		p.put(dim, fmt.Sprintf(" of %-6s", cmp.Or(render.Short(s.Name, s.Capacity), "-")))
	}
	end := p.x + limits
	for _, t := range s.Thresholds {
		p.put(map[bool]tcell.Style{true: style, false: dim}[t.Met], limit(s.Name, &t))
	}
	if !p.narrow() {
		p.x = end
	}
	left := ""
	if s.SecondsToThreshold != nil {
		left = " " + span(*s.SecondsToThreshold) + " left"
	}
	p.put(warned, fmt.Sprintf("%-12s", left))
	if room := p.width - p.x - 1; room >= 8 {
		p.put(dim, " "+spark(v.history[s.Name], room-1))
	}
	p.line()
}

func (v *view) drawBar(p *pen, s *nodestatus.SignalStatus, width int, style tcell.Style) {
	capacity := amount(s.Capacity)
	if s.Name == eviction.MemoryStall.String() {
		capacity = stats.WholeTime
	}
	cell := func(quantity string) int {
		n := amount(quantity)
		if n < 0 || capacity <= 0 {
			return -1
		}
		return min(int(float64(n)/float64(capacity)*float64(width)), width-1)
	}
	full := cell(s.Available)
	p.put(plain, "[")
	for i := range width {
		r, drawn := '·', dim
		if i <= full && s.Available != "" && s.Available != "0" {
			r, drawn = '█', style
		}
		for _, t := range s.Thresholds {
			if cell(t.Quantity) == i {
				r, drawn = map[string]rune{"hard": '┃', "soft": '╎'}[t.Kind], head
			}
		}
		p.put(drawn, string(r))
	}
	p.put(plain, "]")
}

// spark draws the last of some amounts, the least to the most of them.
func spark(all []int64, width int) string {
	all = all[max(0, len(all)-max(0, width)):]
	if len(all) == 0 {
		return ""
	}
	runes := []rune("▁▂▃▄▅▆▇█")
	least, most := slices.Min(all), slices.Max(all)
	var b strings.Builder
	for _, n := range all {
		step := 0
		if most > least {
			step = int(float64(n-least) / float64(most-least) * float64(len(runes)-1))
		}
		b.WriteRune(runes[step])
	}
	return b.String()
}

// drawPods draws the table, and below it why the chosen pod is where it is.
func (v *view) drawPods(p *pen) {
	rows := v.rows()
	name := 24
	for _, r := range rows {
		name = max(name, min(len(r.Pod), p.width/3))
	}
	format := fmt.Sprintf("%%-4v%%-%d.%ds %%-11s%%11s%%9s%%9s  ", name, name)
	title := fmt.Sprintf(format, "#", "POD", "CLASS", "PRIORITY", "USAGE", "REQUEST")
	trend := kept/2 + 1
	if p.narrow() {
		trend = max(0, p.width-len(title))
	} else {
		title += fmt.Sprintf("%-*s", trend, "TREND") + "WHY HERE"
	}
	p.put(head.Reverse(true), fmt.Sprintf("%-*s", p.width, title))
	p.line()
	room, at := max(1, p.height-p.y-2), v.at(rows)
	first := max(0, at-room+1)
	for i := first; i < min(len(rows), first+room); i++ {
		r := rows[i]
		style := plain
		switch {
		case r.Protected != "":
			style = dim
		case r.Exceeds:
			style = warned
		}
		if i == at {
			style = style.Reverse(true)
		}
		p.put(style, fmt.Sprintf(format, r.place, r.Pod, r.QOSClass, fmt.Sprint(r.Priority), cmp.Or(render.Short(v.signal, r.Usage), "-"), render.Short(v.signal, r.Request)))
		p.put(style, fmt.Sprintf("%-*s", trend, spark(v.history[v.signal+" "+string(r.UID)], trend-1)))
		if !p.narrow() {
			p.put(style, r.why())
		}
		p.line()
	}
	if p.x, p.y = 0, p.height-2; len(rows) > 0 {
		p.put(plain, rows[at].Pod+": "+cmp.Or(rows[at].why(), "-"))
	}
}

// why the pod is where it is.
func (r *row) why() string {
	if r.Protected != "" {
		return "never: " + r.Protected
	}
	return r.Because
}

func (v *view) drawStory(p *pen) {
	for _, line := range v.story[min(v.scroll, len(v.story)):] {
		if p.y >= p.height-1 {
			return
		}
		p.put(plain, line)
		p.line()
	}
}

func (v *view) drawFoot(p *pen) {
	keys := fmt.Sprintf("q quit  tab signal  s sort: %s  / filter: %s  ↑↓ choose  enter explain", orders[v.order].name, cmp.Or(v.filter, "-"))
	switch {
	case v.typing:
		keys = "filter: " + v.filter + "_  enter keep  esc drop"
	case v.story != nil:
		keys = "↑↓ scroll  esc back"
	}
	p.put(dim.Reverse(true), fmt.Sprintf("%-*s", p.width, keys))
}
