package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/nodestatus"
)

func load(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile("../../eviction/publish/testdata/" + file)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	require.NoError(t, err)
}

// contents is what a terminal of a size shows.
func contents(t *testing.T, v *view, width, height int) string {
	t.Helper()
	screen := tcell.NewSimulationScreen("UTF-8")
	require.NoError(t, screen.Init())
	defer screen.Fini()
	screen.SetSize(width, height)
	v.draw(screen)
	screen.Show()
	cells, width, height := screen.GetContents()
	var text strings.Builder
	for y := range height {
		var line strings.Builder
		for _, cell := range cells[y*width : (y+1)*width] {
			line.WriteString(string(cell.Runes))
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return text.String()
}

func press(v *view, keys ...any) (asked string, quit bool) {
	for _, key := range keys {
		switch k := key.(type) {
		case rune:
			asked, quit = v.key(tcell.NewEventKey(tcell.KeyRune, k, tcell.ModNone))
		case tcell.Key:
			asked, quit = v.key(tcell.NewEventKey(k, 0, tcell.ModNone))
		}
	}
	return asked, quit
}

func TestTheViewAtTwoWidths(t *testing.T) {
	v := newView()
	var l look
	load(t, "status.json", &l.status)
	for _, available := range []string{"3Gi", "2Gi", "1Gi"} {
		l.status.Signals[0].Available = available
		v.take(l)
	}
	golden.Check(t, "testdata/view-80.txt", contents(t, v, 80, 16))
	golden.Check(t, "testdata/view-140.txt", contents(t, v, 140, 20))
	asked, _ := press(v, tcell.KeyDown, tcell.KeyEnter)
	if asked == "" || asked != v.chosen {
		t.Errorf("asked about %q, chosen is %q", asked, v.chosen)
	}
	l.explain = &nodestatus.Explanation{}
	load(t, "explanation-b.json", l.explain)
	v.take(l)
	golden.Check(t, "testdata/view-story.txt", contents(t, v, 100, 24))
	if press(v, tcell.KeyEscape); v.story != nil {
		t.Error("the explanation stays open")
	}
}

func TestKeysSortFilterAndTurn(t *testing.T) {
	v := newView()
	var l look
	load(t, "status.json", &l.status)
	v.take(l)
	first := func() string {
		rows := v.rows()
		if len(rows) == 0 {
			return ""
		}
		return rows[0].Pod
	}
	signal := v.signal
	if press(v, tcell.KeyTab); v.signal == signal && len(v.ranked()) > 1 {
		t.Error("tab does not turn to the next signal")
	}
	press(v, tcell.KeyBacktab)
	if v.signal != signal {
		t.Errorf("back at %s, not at %s", v.signal, signal)
	}
	press(v, 's', 's', 's')
	if got := first(); got != "default/a" {
		t.Errorf("sorted by name %s is first", got)
	}
	press(v, '/', 'x', tcell.KeyBackspace2, '/', 'd', tcell.KeyEnter)
	if got := first(); got != "default/d" || len(v.rows()) != 1 {
		t.Errorf("filtered by %q %s is first of %d", v.filter, got, len(v.rows()))
	}
	if press(v, tcell.KeyEscape); v.filter != "" {
		t.Error("the filter stays")
	}
	if _, quit := press(v, 'q'); !quit {
		t.Error("q does not quit")
	}
}
