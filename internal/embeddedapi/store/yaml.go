package store

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// toYAML writes what json.Marshal has written, which is valid and without spaces, as YAML
// in block style, keys in the document's order. It exists because a manifest is written
// at every change: the general encoders take a hundred times as long and lose the order.
func toYAML(document []byte) []byte {
	w := yamlWriter{in: document, out: make([]byte, 0, 2*len(document))}
	w.value(0, false)
	return w.out
}

type yamlWriter struct {
	in  []byte // what is not read yet
	out []byte
}

// value writes a value. A multi-line value begins on a new line after a key, and on the
// same line after the hyphen of a list.
func (w *yamlWriter) value(indent int, afterKey bool) {
	opening := w.in[0]
	if opening != '{' && opening != '[' {
		w.space(afterKey)
		w.scalar()
		w.out = append(w.out, '\n')
		return
	}
	w.in = w.in[1:]
	if closing := opening + 2; w.in[0] == closing {
		w.in = w.in[1:]
		w.space(afterKey)
		w.out = append(w.out, opening, closing, '\n')
		return
	}
	if afterKey {
		w.out = append(w.out, '\n')
	}
	for first, more := !afterKey, true; more; first = false {
		if !first {
			w.indent(indent)
		}
		w.member(opening, indent)
		more = w.in[0] == ','
		w.in = w.in[1:]
	}
}

// member writes a key and its value, or a hyphen and its element.
func (w *yamlWriter) member(of byte, indent int) {
	if of == '[' {
		w.out = append(w.out, "- "...)
		w.value(indent+2, false)
		return
	}
	w.scalar()
	w.out = append(w.out, ':')
	w.in = w.in[1:] // the colon
	if w.in[0] != '[' {
		indent += 2
	}
	w.value(indent, true)
}

// scalar writes a string, a number, true, false or null.
func (w *yamlWriter) scalar() {
	if w.in[0] == '"' {
		w.string()
		return
	}
	end := bytes.IndexAny(w.in, ",]}")
	if end < 0 {
		end = len(w.in)
	}
	w.out = append(w.out, w.in[:end]...)
	w.in = w.in[end:]
}

func (w *yamlWriter) string() {
	end, escaped := 1, false
	for ; w.in[end] != '"'; end++ {
		if w.in[end] == '\\' {
			end, escaped = end+1, true
		}
	}
	quoted := w.in[:end+1]
	w.in = w.in[end+1:]
	if !escaped {
		w.text(quoted[1:end])
		return
	}
	var text string
	_ = json.Unmarshal(quoted, &text) // valid
	w.text([]byte(text))
}

func (w *yamlWriter) space(afterKey bool) {
	if afterKey {
		w.out = append(w.out, ' ')
	}
}

func (w *yamlWriter) indent(n int) {
	for range n {
		w.out = append(w.out, ' ')
	}
}

// text writes a string plainly where YAML reads it as a string, else quoted. Go's
// escapes are valid in YAML.
func (w *yamlWriter) text(s []byte) {
	if plain(s) {
		w.out = append(w.out, s...)
		return
	}
	w.out = strconv.AppendQuote(w.out, string(s))
}

// words are what YAML 1.1 reads as other types than string.
var words = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}

func plain(s []byte) bool {
	if len(s) == 0 || !letter(s[0]) && s[0] != '/' || s[len(s)-1] == ' ' || s[len(s)-1] == ':' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if letter(c) || '0' <= c && c <= '9' || strings.IndexByte("_-./@()+", c) >= 0 {
			continue
		}
		if c != ' ' && (c != ':' || s[i+1] == ' ') {
			return false
		}
	}
	return len(s) > 5 || !slices.ContainsFunc(words, func(word string) bool { return strings.EqualFold(word, string(s)) })
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
