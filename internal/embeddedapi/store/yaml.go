package store

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// toYAML writes a JSON document as YAML in block style, keys in the document's order.
// It exists because a manifest is written at every change: the general encoders take
// ten times as long and lose the order.
func toYAML(document []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	w := yamlWriter{decoder: decoder}
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	if err := w.value(token, 0, false); err != nil {
		return nil, err
	}
	return w.out, nil
}

type yamlWriter struct {
	decoder *json.Decoder
	out     []byte
}

// value writes a value. A multi-line value begins on a new line after a key, and on the
// same line after the hyphen of a list.
func (w *yamlWriter) value(token json.Token, indent int, afterKey bool) error {
	opening, nested := token.(json.Delim)
	if !nested {
		return w.scalar(token, afterKey)
	}
	if !w.decoder.More() {
		if _, err := w.decoder.Token(); err != nil {
			return err
		}
		w.space(afterKey)
		w.out = append(w.out, map[json.Delim]string{'{': "{}\n", '[': "[]\n"}[opening]...)
		return nil
	}
	if afterKey {
		w.out = append(w.out, '\n')
	}
	for first := !afterKey; w.decoder.More(); first = false {
		if !first {
			w.indent(indent)
		}
		if err := w.member(opening, indent); err != nil {
			return err
		}
	}
	_, err := w.decoder.Token()
	return err
}

// member writes a key and its value, or a hyphen and its element.
func (w *yamlWriter) member(of json.Delim, indent int) error {
	token, err := w.decoder.Token()
	if err != nil {
		return err
	}
	if of == '[' {
		w.out = append(w.out, "- "...)
		return w.value(token, indent+2, false)
	}
	w.text(token.(string))
	w.out = append(w.out, ':')
	if token, err = w.decoder.Token(); err != nil {
		return err
	}
	if token != json.Delim('[') {
		indent += 2
	}
	return w.value(token, indent, true)
}

func (w *yamlWriter) scalar(token json.Token, afterKey bool) error {
	w.space(afterKey)
	switch v := token.(type) {
	case string:
		w.text(v)
	case json.Number:
		w.out = append(w.out, v...)
	case bool:
		w.out = strconv.AppendBool(w.out, v)
	default:
		w.out = append(w.out, "null"...)
	}
	w.out = append(w.out, '\n')
	return nil
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
func (w *yamlWriter) text(s string) {
	if plain(s) {
		w.out = append(w.out, s...)
		return
	}
	w.out = strconv.AppendQuote(w.out, s)
}

// words are what YAML 1.1 reads as other types than string.
var words = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}

func plain(s string) bool {
	if s == "" || !letter(s[0]) && s[0] != '/' || s[len(s)-1] == ' ' || s[len(s)-1] == ':' {
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
	return len(s) > 5 || !slices.Contains(words, strings.ToLower(s))
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
