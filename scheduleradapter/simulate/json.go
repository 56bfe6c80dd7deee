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

// JSON reports one object per line. An attempt has all evaluated nodes, so that the
// output for a large cluster has gigabytes; the lines are encoded by hand.
type JSON struct {
	out  *bufio.Writer
	line []byte

	nodes   []listed        // all nodes by name
	version uint64          // of the table for nodes
	rank    []nodetable.Row // index in nodes by row
	ranks   nodetable.Bits  // evaluated nodes
	looked  []listed        // evaluated nodes by name
	place   []int32         // index in the cycle's Rows by row
	scorers []listed        // score plugins of the attempt by name
	whys    map[framework.Rejection][]byte
}

// listed is the row of a node or the index of a plugin, with its name as a JSON
// key.
type listed struct {
	at  int
	key []byte
}

func NewJSON(w io.Writer) *JSON {
	return &JSON{out: bufio.NewWriterSize(w, 1<<16), whys: map[framework.Rejection][]byte{}}
}

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

func (j *JSON) PodGroup(g *PodGroup) {
	j.line = j.line[:0]
	j.field("at", g.At.String())
	j.field("podGroup", g.Group.Namespace+"/"+g.Group.Name)
	j.field("condition", g.Condition.Type)
	j.field("status", g.Condition.Status)
	j.field("reason", g.Condition.Reason)
	j.field("message", g.Condition.Message)
	j.end()
}

func (j *JSON) End(s Summary) error {
	j.line = j.line[:0]
	j.field("summary", s)
	j.end()
	return j.out.Flush()
}

// end ends a line; Flush returns write errors.
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

// encoded is a value as JSON without HTML escapes. Its types never fail.
func encoded(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic("simulate: " + err.Error())
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// list updates the names of nodes and score plugins.
func (j *JSON) list(c *framework.Cycle) {
	if j.nodes == nil || j.version != c.Table.Versions.Nodes {
		j.version = c.Table.Versions.Nodes
		j.listNodes(c.Table)
	}
	j.ranks = j.ranks.Emptied(len(j.nodes))
	for row := range c.Evaluated.All() {
		j.ranks.Set(j.rank[row])
	}
	j.looked = j.looked[:0]
	for rank := range j.ranks.All() {
		j.looked = append(j.looked, j.nodes[rank])
	}
	j.scorers = j.scorers[:0]
	for i, name := range c.Runner().ScorePlugins() {
		if _, ran := c.ScoreOf(i, 0); ran {
			j.scorers = append(j.scorers, listed{i, key(name)})
		}
	}
	sortByName(j.scorers)
	for i, row := range c.Rows {
		j.place[row] = int32(i)
	}
}

func (j *JSON) listNodes(t *nodetable.Table) {
	j.nodes = j.nodes[:0]
	for row := range t.Alive().All() {
		j.nodes = append(j.nodes, listed{int(row), key(t.Node(row).Name.Value())})
	}
	sortByName(j.nodes)
	j.rank, j.place = make([]nodetable.Row, t.Rows()), make([]int32, t.Rows())
	for rank, node := range j.nodes {
		j.rank[node.at] = nodetable.Row(rank)
	}
}

func key(name string) []byte { return append(encoded(name), ':') }

// sortByName sorts by the JSON keys.
func sortByName(all []listed) {
	slices.SortFunc(all, func(a, b listed) int { return bytes.Compare(a.key[:len(a.key)-1], b.key[:len(b.key)-1]) })
}

func (j *JSON) feasible(c *framework.Cycle) {
	j.key("feasible")
	j.object("[]", c, func(row nodetable.Row, key []byte) bool {
		if !c.Feasible.Has(row) {
			return false
		}
		j.line = append(j.line, key[:len(key)-1]...)
		return true
	})
}

func (j *JSON) filtered(c *framework.Cycle) {
	j.key("filtered")
	clear(j.whys)
	j.object("{}", c, func(row nodetable.Row, key []byte) bool {
		why, rejected := c.Rejected(row)
		if !rejected {
			return false
		}
		further := c.Further(row)
		text, known := j.whys[why]
		if !known || further != nil {
			plugin, reasons := c.Explain(why)
			text = encoded(struct {
				Plugin     string   `json:"plugin"`
				Reasons    []string `json:"reasons"`
				Resolvable bool     `json:"resolvable"`
			}{plugin, slices.Concat(reasons, further), !why.Unresolvable})
			if further == nil {
				j.whys[why] = text
			}
		}
		j.line = append(append(j.line, key...), text...)
		return true
	})
}

func (j *JSON) scores(c *framework.Cycle) {
	j.key("scores")
	j.object("{}", c, func(row nodetable.Row, key []byte) bool {
		if len(c.Totals) == 0 || !c.Feasible.Has(row) {
			return false
		}
		i := int(j.place[row])
		j.line = append(append(j.line, key...), `{"total":`...)
		j.line = strconv.AppendInt(j.line, c.Totals[i], 10)
		j.line = append(j.line, `,"plugins":{`...)
		for n, s := range j.scorers {
			if n > 0 {
				j.line = append(j.line, ',')
			}
			score, _ := c.ScoreOf(s.at, i)
			j.line = strconv.AppendInt(append(j.line, s.key...), score, 10)
		}
		j.line = append(j.line, "}}"...)
		return true
	})
}

// object writes a member for each node for which the function writes, by name.
func (j *JSON) object(brackets string, c *framework.Cycle, member func(row nodetable.Row, key []byte) bool) {
	j.line = append(j.line, brackets[0])
	begin := len(j.line)
	if c != nil {
		for _, node := range j.looked {
			before := len(j.line)
			if before > begin {
				j.line = append(j.line, ',')
			}
			if !member(nodetable.Row(node.at), node.key) {
				j.line = j.line[:before]
			}
		}
	}
	j.line = append(j.line, brackets[1])
}
