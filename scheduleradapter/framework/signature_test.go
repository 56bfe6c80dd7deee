package framework

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// signedPlugin is a plugin with the same parts of a signature as a filter and as a scorer.
type signedPlugin struct {
	fakePlugin
	numbers []int64
	symbols []nodetable.Symbol
	width   int
}

func (p *signedPlugin) SignFilter(_ *Cycle, s *Signature) (width int, ok bool) {
	s.Add(p.numbers...)
	s.AddSymbols(p.symbols...)
	return p.width, true
}

func (*signedPlugin) FitsRow(*Cycle, nodetable.Row) bool               { return true }
func (*signedPlugin) FilterClass(_ *Cycle, _ nodetable.Row, _ []int32) {}
func (*signedPlugin) FitsClass(*Cycle, []int32) bool                   { return true }
func (p *signedPlugin) SignClasses(c *Cycle, s *Signature) (width int, ok bool) {
	return p.SignFilter(c, s)
}
func (*signedPlugin) ScoreClass(_ *Cycle, _ nodetable.Row, _ []int32) {}
func (*signedPlugin) ScoreClasses(_ *Cycle, _ []Class, _ []int64)     {}

func TestPartsOfDifferentPluginsDoNotLookAlike(t *testing.T) {
	one, symbol, otherSymbol := []int64{1}, []nodetable.Symbol{nodetable.Intern("a")}, []nodetable.Symbol{nodetable.Intern("b")}
	cases := map[string][3]signedPlugin{ // two filters and a scorer
		"number of the first filter":  {{numbers: one, width: 1}, {width: 1}, {width: 1}},
		"number of the second filter": {{width: 1}, {numbers: one, width: 1}, {width: 1}},
		"number of the scorer":        {{width: 1}, {width: 1}, {numbers: one, width: 1}},
		"symbol of the first filter":  {{symbols: symbol, width: 1}, {width: 1}, {width: 1}},
		"other symbol":                {{symbols: otherSymbol, width: 1}, {width: 1}, {width: 1}},
		"symbol of the second filter": {{width: 1}, {symbols: symbol, width: 1}, {width: 1}},
		"symbol of the scorer":        {{width: 1}, {width: 1}, {symbols: symbol, width: 1}},
		"value of the first filter":   {{width: 2}, {width: 1}, {width: 1}},
		"value of the second filter":  {{width: 1}, {width: 2}, {width: 1}},
		"value of the scorer":         {{width: 1}, {width: 1}, {width: 2}},
		"no scorer":                   {{width: 1}, {width: 1}, {}},
	}
	r, seen, hashes := &Runner{}, map[Signature]string{}, map[nodetable.Hash]string{}
	for name, plugins := range cases {
		r.filters = []named[Filterer]{{plugin: &plugins[0]}, {plugin: &plugins[1]}}
		r.scorers = []named[Scorer]{{plugin: &plugins[2], weight: 1}}
		c := &Cycle{Pod: nodetable.NewPod(&v1.Pod{}), skipFilter: make([]bool, 2)}
		if !r.sign(c) {
			t.Fatalf("%s: the cycle has no signature", name)
		}
		if other, known := seen[c.rowPlugins.signature]; known {
			t.Errorf("%s: the signature is that of: %s", name, other)
		}
		seen[c.rowPlugins.signature] = name
		if other, known := hashes[c.rowPlugins.signature.hash()]; known {
			t.Errorf("%s: the hash is that of: %s", name, other)
		}
		hashes[c.rowPlugins.signature.hash()] = name
		if other := *r; !other.sign(c) || seen[c.rowPlugins.signature] != "" {
			t.Errorf("%s: another profile has the same signature", name)
		}
	}
}
