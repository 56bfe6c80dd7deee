package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gdamore/tcell/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/nodestatus"
)

// kept is how many looks a sparkline remembers.
const kept = 24

// view is what the terminal shows. One goroutine owns it.
type view struct {
	status  nodestatus.Status
	err     error
	history map[string][]int64 // of signals by name, and of pods' usage by signal and uid

	signal string // whose order is shown
	order  int    // of orders
	filter string
	typing bool // into the filter
	chosen string
	// story is the explanation that is open, scrolled by so many lines; nil for none.
	story  []string
	scroll int
}

func newView() *view { return &view{history: map[string][]int64{}} }

// orders are the ways to sort pods. The first is the daemon's.
var orders = []struct {
	name    string
	compare func(a, b *row) int
}{
	{"eviction", func(a, b *row) int { return a.place - b.place }},
	{"usage", func(a, b *row) int { return cmp.Compare(amount(b.Usage), amount(a.Usage)) }},
	{"priority", func(a, b *row) int { return cmp.Compare(a.Priority, b.Priority) }},
	{"name", func(a, b *row) int { return strings.Compare(a.Pod, b.Pod) }},
}

// row is a pod in the table.
type row struct {
	nodestatus.Ranked
	place int
}

// amount of a quantity, of a stall in hundredths of a percent; what is not known counts as less than nothing.
func amount(quantity string) int64 {
	if share, err := eviction.ParseShare(quantity); err == nil {
		return int64(share)
	}
	q, err := resource.ParseQuantity(quantity)
	if err != nil {
		return -1
	}
	return q.Value()
}

// take notes what a look brought.
func (v *view) take(l look) {
	if v.err = l.err; l.err != nil {
		return
	}
	v.status = l.status
	if l.explain != nil {
		v.story = explained(l.explain)
	}
	seen := map[string]bool{}
	note := func(key, quantity string) {
		seen[key] = true
		all := append(v.history[key], amount(quantity))
		v.history[key] = all[max(0, len(all)-kept):]
	}
	for i := range v.status.Signals {
		note(v.status.Signals[i].Name, v.status.Signals[i].Available)
	}
	for signal, ranking := range v.status.Ranking {
		for i := range ranking {
			note(signal+" "+string(ranking[i].UID), ranking[i].Usage)
		}
	}
	for key := range v.history {
		if !seen[key] {
			delete(v.history, key)
		}
	}
	if signals := v.ranked(); !slices.Contains(signals, v.signal) && len(signals) > 0 {
		v.signal = signals[0]
	}
}

// ranked are the signals that pods are ranked for, in the daemon's order.
func (v *view) ranked() (names []string) {
	for i := range v.status.Signals {
		if name := v.status.Signals[i].Name; v.status.Ranking[name] != nil {
			names = append(names, name)
		}
	}
	return names
}

// rows are the pods shown.
func (v *view) rows() (rows []*row) {
	for i, r := range v.status.Ranking[v.signal] {
		if strings.Contains(r.Pod, v.filter) {
			rows = append(rows, &row{r, i + 1})
		}
	}
	slices.SortStableFunc(rows, orders[v.order].compare)
	return rows
}

// at is the index of the chosen pod, or of the first.
func (v *view) at(rows []*row) int {
	return max(0, slices.IndexFunc(rows, func(r *row) bool { return string(r.UID) == v.chosen }))
}

// key does what a key says. It may ask about a pod, by its uid, or to quit.
func (v *view) key(e *tcell.EventKey) (ask string, quit bool) {
	switch {
	case e.Key() == tcell.KeyCtrlC:
		return "", true
	case v.typing:
		v.typeFilter(e)
		return "", false
	case v.story != nil:
		v.readStory(e)
		return "", false
	}
	rows := v.rows()
	switch e.Key() {
	case tcell.KeyUp:
		v.choose(rows, -1)
	case tcell.KeyDown:
		v.choose(rows, 1)
	case tcell.KeyPgUp:
		v.choose(rows, -10)
	case tcell.KeyPgDn:
		v.choose(rows, 10)
	case tcell.KeyTab, tcell.KeyRight:
		v.turn(1)
	case tcell.KeyBacktab, tcell.KeyLeft:
		v.turn(-1)
	case tcell.KeyEscape:
		v.filter = ""
	case tcell.KeyEnter:
		if len(rows) > 0 {
			v.scroll, ask = 0, string(rows[v.at(rows)].UID)
		}
	case tcell.KeyRune:
		switch e.Rune() {
		case 'q':
			return "", true
		case 's':
			v.order = (v.order + 1) % len(orders)
		case '/':
			v.typing = true
		case 'k':
			v.choose(rows, -1)
		case 'j':
			v.choose(rows, 1)
		}
	}
	return ask, false
}

func (v *view) typeFilter(e *tcell.EventKey) {
	switch e.Key() {
	case tcell.KeyEscape:
		v.filter, v.typing = "", false
	case tcell.KeyEnter:
		v.typing = false
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		if all := []rune(v.filter); len(all) > 0 {
			v.filter = string(all[:len(all)-1])
		}
	case tcell.KeyRune:
		v.filter += string(e.Rune())
	}
}

func (v *view) readStory(e *tcell.EventKey) {
	switch {
	case e.Key() == tcell.KeyDown || e.Rune() == 'j':
		v.scroll = min(v.scroll+1, len(v.story)-1)
	case e.Key() == tcell.KeyUp || e.Rune() == 'k':
		v.scroll = max(v.scroll-1, 0)
	case e.Key() == tcell.KeyEscape || e.Key() == tcell.KeyEnter || e.Rune() == 'q':
		v.story = nil
	}
}

func (v *view) choose(rows []*row, step int) {
	if len(rows) > 0 {
		v.chosen = string(rows[min(max(v.at(rows)+step, 0), len(rows)-1)].UID)
	}
}

func (v *view) turn(step int) {
	if names := v.ranked(); len(names) > 0 {
		v.signal = names[(slices.Index(names, v.signal)+step+len(names))%len(names)]
	}
}
