package bound

import (
	"bytes"
	"errors"

	"go.yaml.in/yaml/v3"
)

// mostSigns is how many characters a YAML text may have that begin or end a value. Each value takes a parser about 200 bytes.
const mostSigns = 100_000

// ErrAliases is the error for YAML with aliases that become more than a text may be large.
var ErrAliases = errors.New("the aliases of the YAML document become too much text")

// YAML returns the error for a text that is too costly to be parsed, or whose aliases become more than most bytes of text.
func YAML(text []byte, most int) error {
	signs := 0
	for _, c := range text {
		if bytes.IndexByte([]byte(",:-[{?\n"), c) >= 0 {
			signs++
		}
	}
	if signs > mostSigns {
		return ErrTooLarge
	}
	if bytes.IndexByte(text, '&') < 0 || bytes.IndexByte(text, '*') < 0 {
		return nil
	}
	var root yaml.Node
	if yaml.Unmarshal(text, &root) != nil {
		return nil
	}
	e := expansion{sizes: map[*yaml.Node]int{}, most: most}
	if e.of(&root) > most {
		return ErrAliases
	}
	return nil
}

// expansion is how much text nodes become.
type expansion struct {
	sizes map[*yaml.Node]int // of anchored nodes; more than most while the node is being computed: it contains itself
	most  int
}

// of is the size of a node, at most a little more than most.
func (e *expansion) of(node *yaml.Node) int {
	if node.Kind == yaml.AliasNode {
		return e.of(node.Alias)
	}
	if size, known := e.sizes[node]; known {
		return size
	}
	if node.Anchor != "" {
		e.sizes[node] = e.most + 1
	}
	size := len(node.Value) + 2
	for _, inner := range node.Content {
		if size += e.of(inner); size > e.most {
			size = e.most + 1
			break
		}
	}
	if node.Anchor != "" {
		e.sizes[node] = size
	}
	return size
}
