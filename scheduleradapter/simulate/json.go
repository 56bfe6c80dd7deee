package simulate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// JSON reports one object a line. An attempt names every node it looked at, so
// that a large cluster makes gigabytes of lines: they are put together by hand.
type JSON struct {
	out  *bufio.Writer
	line []byte

	nodes   []listed // all, by name
	version uint64   // of the table's nodes that nodes are
	place   []int32  // by row, where the row is among the cycle's Rows
	scorers []listed // of the profile of the attempt, by name
	whys    map[framework.Rejection][]byte
}

// listed is a node's row or a plugin's index, with its name as JSON.
type listed struct {
	at   int
	name []byte
}

// NewJSON writes to w.
func NewJSON(w io.Writer) *JSON {
	return &JSON{out: bufio.NewWriterSize(w, 1<<16), whys: map[framework.Rejection][]byte{}}
}

// Attempt writes an attempt's line.
func (j *JSON) Attempt(a *Attempt) {
	victims := make([]string, len(a.Victims))
	for i, v := range a.Victims {
		victims[i] = v.String()
	}
	j.line = j.line[:0]
	j.field("at", a.At.String())
	j.field("pod", a.Pod.String())
	j.field("profile", a.Pod.Object.Spec.SchedulerName)
	j.field("attempt", a.Number)
	j.field("result", a.Outcome)
	j.field("node", a.Node)
	evaluated := 0
	if a.Cycle != nil {
		evaluated = a.Cycle.Evaluated.Count()
		j.list(a.Cycle)
	}
	j.field("evaluatedNodes", evaluated)
	j.feasible(a.Cycle)
	j.filtered(a.Cycle)
	j.scores(a.Cycle)
	j.field("nominatedNode", a.Nominated)
	j.field("victims", victims)
	j.field("message", a.Message)
	j.end()
}

// Event writes an event's line.
func (j *JSON) Event(e *Event) {
	j.line = j.line[:0]
	j.field("at", e.At.String())
	j.field("event", e.Kind)
	j.field("pod", e.Pod.String())
	j.field("node", e.Node)
	j.field("by", e.By)
	if e.Taint != "" {
		j.field("taint", e.Taint)
	}
	j.end()
}

// End writes the summary.
func (j *JSON) End(s Summary) error {
	j.line = j.line[:0]
	j.field("summary", s)
	j.end()
	return j.out.Flush()
}

// end completes a line; what cannot be written shows when everything is flushed.
func (j *JSON) end() {
	j.line = append(j.line, "}\n"...)
	j.out.Write(j.line)
}

func (j *JSON) key(name string) {
	separator := byte(',')
	if len(j.line) == 0 {
		separator = '{'
	}
	j.line = append(j.line, separator, '"')
	j.line = append(append(j.line, name...), `":`...)
}

func (j *JSON) field(name string, value any) {
	j.key(name)
	j.line = append(j.line, encoded(value)...)
}

// encoded is a value as JSON, in which < and > stay what they are. Values are of
// strings, numbers, and slices and structs of them, so that none fails.
func encoded(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic("simulate: " + err.Error())
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// list prepares the names of nodes and of score plugins.
func (j *JSON) list(c *framework.Cycle) {
	if j.nodes == nil || j.version != c.Table.Versions.Nodes {
		j.version = c.Table.Versions.Nodes
		j.nodes = j.nodes[:0]
		for row := range c.Table.Alive().All() {
			j.nodes = append(j.nodes, listed{int(row), encoded(c.Table.Node(row).Name.Value())})
		}
		sortByName(j.nodes)
		j.place = make([]int32, c.Table.Rows())
	}
	j.scorers = j.scorers[:0]
	for i, name := range c.Runner().ScorePlugins() {
		j.scorers = append(j.scorers, listed{i, encoded(name)})
	}
	sortByName(j.scorers)
	for i, row := range c.Rows {
		j.place[row] = int32(i)
	}
}

func sortByName(all []listed) {
	slices.SortFunc(all, func(a, b listed) int { return bytes.Compare(a.name, b.name) })
}

func (j *JSON) feasible(c *framework.Cycle) {
	j.key("feasible")
	j.object("[]", c, func(row nodetable.Row, name []byte) bool {
		if !c.Feasible.Has(row) {
			return false
		}
		j.line = append(j.line, name...)
		return true
	})
}

func (j *JSON) filtered(c *framework.Cycle) {
	j.key("filtered")
	clear(j.whys)
	j.object("{}", c, func(row nodetable.Row, name []byte) bool {
		why, rejected := c.Rejected(row)
		if !rejected {
			return false
		}
		text, known := j.whys[why]
		if !known {
			plugin, reasons := c.Explain(why)
			text = encoded(struct {
				Plugin     string   `json:"plugin"`
				Reasons    []string `json:"reasons"`
				Resolvable bool     `json:"resolvable"`
			}{plugin, reasons, !why.Unresolvable})
			j.whys[why] = text
		}
		j.line = append(append(append(j.line, name...), ':'), text...)
		return true
	})
}

func (j *JSON) scores(c *framework.Cycle) {
	j.key("scores")
	j.object("{}", c, func(row nodetable.Row, name []byte) bool {
		if len(c.Totals) == 0 || !c.Feasible.Has(row) {
			return false
		}
		i := int(j.place[row])
		j.line = append(append(j.line, name...), `:{"total":`...)
		j.line = strconv.AppendInt(j.line, c.Totals[i], 10)
		j.line = append(j.line, `,"plugins":{`...)
		first := true
		for _, s := range j.scorers {
			score, ran := c.ScoreOf(s.at, i)
			if !ran {
				continue
			}
			if !first {
				j.line = append(j.line, ',')
			}
			first = false
			j.line = append(append(j.line, s.name...), ':')
			j.line = strconv.AppendInt(j.line, score, 10)
		}
		j.line = append(j.line, "}}"...)
		return true
	})
}

// object writes a member for each node of which member wrote something, in the
// order of names.
func (j *JSON) object(brackets string, c *framework.Cycle, member func(row nodetable.Row, name []byte) bool) {
	j.line = append(j.line, brackets[0])
	begin := len(j.line)
	if c != nil {
		for _, node := range j.nodes {
			before := len(j.line)
			if before > begin {
				j.line = append(j.line, ',')
			}
			if !member(nodetable.Row(node.at), node.name) {
				j.line = j.line[:before]
			}
		}
	}
	j.line = append(j.line, brackets[1])
}
