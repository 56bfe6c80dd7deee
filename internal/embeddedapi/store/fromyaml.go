package store

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// fromYAML is the JSON of a manifest in the form that toYAML writes. It returns nil where the
// manifest has another form: YAML has many, and all manifests are read at the start.
func fromYAML(text []byte) []byte {
	r := yamlReader{text: text, out: make([]byte, 0, len(text))}
	if n := r.next(); n == 0 && r.block(0, 0) && r.next() < 0 {
		return r.out
	}
	return nil
}

// yamlReader reads the rest of text.
type yamlReader struct {
	text []byte
	out  []byte
}

// deepest is how deep a document may be nested.
const deepest = 100

// next is the indentation of the next line, -1 at the end.
func (r *yamlReader) next() int {
	if len(r.text) == 0 {
		return -1
	}
	return len(r.text) - len(bytes.TrimLeft(r.text, " "))
}

func (r *yamlReader) has(prefix string) bool { return bytes.HasPrefix(r.text, []byte(prefix)) }

// block reads a map or a list, whose first line has no indentation left. It returns false where the
// form is another.
func (r *yamlReader) block(indent, depth int) bool {
	if depth > deepest {
		return false
	}
	member, marks := r.entry, "{}"
	if r.has("- ") {
		member, marks = r.element, "[]"
	}
	for separator := marks[0]; ; separator = ',' {
		r.out = append(r.out, separator)
		if !member(indent, depth) {
			return false
		}
		n := r.next()
		isElement := n >= 0 && bytes.HasPrefix(r.text[n:], []byte("- "))
		if n > indent || n == indent && isElement && marks == "{}" {
			return false
		}
		if n < indent || isElement != (marks == "[]") {
			break
		}
		r.text = r.text[n:]
	}
	r.out = append(r.out, marks[1])
	return true
}

// element reads an element of a list.
func (r *yamlReader) element(indent, depth int) bool {
	r.text = r.text[len("- "):]
	if _, isKey := r.key(); isKey || r.has("- ") {
		return r.block(indent+2, depth+1)
	}
	return r.scalar()
}

// entry reads a key and its value.
func (r *yamlReader) entry(indent, depth int) bool {
	length, isKey := r.key()
	if !isKey || !r.value(r.text[:length]) {
		return false
	}
	r.out = append(r.out, ':')
	r.text = r.text[length+1:]
	if !r.has("\n") {
		if !r.has(" ") {
			return false
		}
		r.text = r.text[1:]
		return r.scalar()
	}
	r.text = r.text[1:]
	n := r.next()
	if n < 0 || n != indent+2 && !(n == indent && bytes.HasPrefix(r.text[n:], []byte("- "))) {
		return false
	}
	r.text = r.text[n:]
	return r.block(n, depth+1)
}

// key is the length of the key with which the line begins.
func (r *yamlReader) key() (length int, isKey bool) {
	line, _, _ := bytes.Cut(r.text, []byte("\n"))
	if r.has(`"`) {
		quoted, err := strconv.QuotedPrefix(string(line))
		rest := line[len(quoted):]
		return len(quoted), err == nil && (bytes.Equal(rest, []byte(":")) || bytes.HasPrefix(rest, []byte(": ")))
	}
	if at := bytes.Index(line, []byte(": ")); at >= 0 {
		return at, plain(string(line[:at]))
	}
	key, isKey := bytes.CutSuffix(line, []byte(":"))
	return len(key), isKey && plain(string(key))
}

// scalar reads the rest of the line.
func (r *yamlReader) scalar() bool {
	line, rest, ended := bytes.Cut(r.text, []byte("\n"))
	r.text = rest
	switch string(line) {
	case "{}", "[]", "true", "false", "null":
		r.out = append(r.out, line...)
		return ended
	}
	if isNumber(line) {
		r.out = append(r.out, line...)
		return ended
	}
	return r.value(line) && ended
}

// value writes a string as JSON.
func (r *yamlReader) value(text []byte) bool {
	if plain(string(text)) {
		r.out = append(r.out, '"')
		r.out = append(r.out, text...)
		r.out = append(r.out, '"')
		return true
	}
	s, err := strconv.Unquote(string(text))
	if err != nil || strconv.Quote(s) != string(text) { // YAML has other escapes than Go
		return false
	}
	quoted, err := json.Marshal(s)
	r.out = append(r.out, quoted...)
	return err == nil
}

// isNumber says that a text is a short decimal number, which YAML and JSON read alike.
func isNumber(text []byte) bool {
	digits := bytes.TrimPrefix(text, []byte("-"))
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && string(text) != "0" {
		return false
	}
	for _, c := range digits {
		if c < '0' || '9' < c {
			return false
		}
	}
	return true
}
