package manifest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf16"

	"go.yaml.in/yaml/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// Split separates the documents of a YAML stream, or of a stream of JSON
// values, and leaves out what holds no more than comments and directives. Three
// hyphens at the beginning of a line begin a document, three dots end one. The
// text is UTF-8, or UTF-16 with a byte order mark. The error has the position
// of what cannot be read; the documents before it are returned.
func Split(data []byte) (documents [][]byte, err error) {
	if data, err = utf8Text(data); err != nil {
		return nil, err
	}
	add := func(begin, end int) {
		if err == nil && !blank(data[begin:end]) {
			var values [][]byte
			values, err = jsonValues(data[:end], begin)
			documents = append(documents, values...)
		}
	}
	begin, at := 0, 0
	for line := range bytes.Lines(data) {
		switch {
		case marks(line, "---"):
			add(begin, at)
			begin = at + len("---")
		case marks(line, "..."):
			add(begin, at)
			begin = at + len(line)
		}
		at += len(line)
	}
	add(begin, len(data))
	return documents, err
}

// utf8Text is a text as UTF-8 without a byte order mark.
func utf8Text(data []byte) ([]byte, error) {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe")):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte("\xfe\xff")):
		order = binary.BigEndian
	default:
		return bytes.TrimPrefix(data, []byte("\ufeff")), nil
	}
	if len(data)%2 != 0 {
		return nil, errors.New("the text is UTF-16: expected an even number of bytes")
	}
	units := make([]uint16, len(data)/2-1)
	for i := range units {
		units[i] = order.Uint16(data[2*i+2:])
	}
	return []byte(string(utf16.Decode(units))), nil
}

// marks says whether the line is the document marker, alone or before space.
func marks(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n"))
}

func blank(document []byte) bool {
	for line := range bytes.Lines(document) {
		text := bytes.TrimSpace(line)
		if len(text) > 0 && text[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// jsonValues splits the objects and lists of a JSON stream that begins at an
// offset, and skips the container logs that kubectl cluster-info dump has in
// between. Anything else stays one document.
func jsonValues(text []byte, begin int) (values [][]byte, err error) {
	for at := begin; ; {
		at += len(text[at:]) - len(bytes.TrimLeft(text[at:], " \t\r\n"))
		if len(values) > 0 {
			at += len(containerLog(text[at:]))
		}
		var value json.RawMessage
		stream := json.NewDecoder(bytes.NewReader(text[at:]))
		switch isValue := at < len(text) && bytes.ContainsAny(text[at:at+1], "{["); {
		case at == len(text):
			return values, nil
		case isValue && stream.Decode(&value) == nil:
			values = append(values, value)
			at += int(stream.InputOffset())
		case len(values) < 2: // YAML may begin like JSON; Parse refuses what follows the first value
			return [][]byte{text[begin:]}, nil
		default:
			found, _, _ := bytes.Cut(text[at:], []byte("\n"))
			return values, fmt.Errorf("line %d: expected a JSON object or list, found %.40q", 1+bytes.Count(text[:at], []byte("\n")), found)
		}
	}
}

// containerLog is the log that a text begins with, in the form of kubectl cluster-info
// dump, with the space behind it.
func containerLog(text []byte) []byte {
	const begins, ends = "==== START logs for container ", "\n==== END logs for container "
	container, isLog := bytes.CutPrefix(text, []byte(begins))
	if !isLog {
		return nil
	}
	container, _, _ = bytes.Cut(container, []byte("\n"))
	_, rest, ended := bytes.Cut(text, append([]byte(ends), container...))
	if !ended {
		return nil
	}
	return text[:len(text)-len(bytes.TrimLeft(rest, " \t\r\n"))]
}

// checkEnd refuses what follows the first document of a valid YAML text: a decoder
// reads one and ignores the rest.
func checkEnd(document []byte) error {
	var ignored struct{}
	decoder := yaml.NewDecoder(bytes.NewReader(document))
	_ = decoder.Decode(&ignored)
	err := decoder.Decode(&ignored)
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	if !strings.HasSuffix(err.Error(), "did not find expected <document start>") {
		return err
	}
	line := 0 // the parser counts from 0, and leaves 0 out
	_, _ = fmt.Sscanf(err.Error(), "yaml: line %d:", &line)
	return fmt.Errorf("line %d: expected the end of the document or ---", line+1)
}

// One is the only document of a file. expected names its kinds.
func One(data []byte, expected string) (Document, error) {
	documents, err := Split(data)
	if err != nil {
		return Document{}, err
	}
	if len(documents) != 1 {
		return Document{}, fmt.Errorf("expected one document of kind %s, found %d", expected, len(documents))
	}
	return Parse(documents[0])
}

// Object is a document of a file, or an item of a list in it.
type Object struct {
	Document
	// TypeMeta of an item without one is that of its list.
	metav1.TypeMeta
	// Place is that of the object in the file; empty if it is the only one.
	Place string
}

// Objects reads the documents of a file, and the objects of lists of Kubernetes, and of
// JSON or YAML lists. The error joins the faults, each with its place; all other
// objects are returned.
func Objects(data []byte) (objects []Object, err error) {
	documents, err := Split(data)
	r := reader{faults: []error{err}}
	for i, document := range documents {
		place := ""
		if len(documents) > 1 || err != nil {
			place = fmt.Sprintf("document %d", i+1)
		}
		r.read(place, document, metav1.TypeMeta{})
	}
	return r.objects, errors.Join(r.faults...)
}

// maxDepth bounds lists in lists: each is read again.
const maxDepth = 8

// reader has what Objects has read.
type reader struct {
	objects []Object
	faults  []error
	depth   int
}

func (r *reader) read(place string, text []byte, expected metav1.TypeMeta) {
	document, err := Parse(text)
	if err != nil {
		r.faults = append(r.faults, At(place, err))
		return
	}
	if document.raw[0] == '[' {
		var items []json.RawMessage
		r.faults = append(r.faults, At(place, document.Decode(&items)))
		r.items(place, "", items, expected)
		return
	}
	about, err := document.Type()
	if err != nil {
		r.faults = append(r.faults, At(place, err))
		return
	}
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	item := metav1.TypeMeta{APIVersion: about.APIVersion}
	isList := false
	if item.Kind, isList = strings.CutSuffix(about.Kind, "List"); isList {
		err = document.Decode(&list)
	}
	switch {
	case about == metav1.TypeMeta{APIVersion: "v1", Kind: "List"}:
		item = metav1.TypeMeta{}
	case list.Items == nil || document.name() != "" || slices.ContainsFunc(list.Items, func(item json.RawMessage) bool { return item[0] != '{' }): // some kind of a custom resource
		if about == (metav1.TypeMeta{}) {
			about = expected
		}
		r.objects = append(r.objects, Object{document, about, place})
		return
	}
	r.faults = append(r.faults, At(place, err))
	r.items(place, "items", list.Items, item)
}

func (r *reader) items(place, name string, items []json.RawMessage, of metav1.TypeMeta) {
	if r.depth == maxDepth {
		r.faults = append(r.faults, At(place, fmt.Errorf("lists in lists: expected at most %d", maxDepth)))
		return
	}
	if place != "" {
		place += ": "
	}
	r.depth++
	defer func() { r.depth-- }()
	for i, item := range items {
		r.read(fmt.Sprintf("%s%s[%d]", place, name, i), item, of)
	}
}

// name is the name of an object; empty if it has none.
func (d *Document) name() string {
	var object struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	_ = kjson.UnmarshalCaseSensitivePreserveInts(d.raw, &object)
	return object.Metadata.Name
}

// At puts a place before each fault of an error; an empty place is left out.
func At(place string, err error) error {
	if place == "" {
		return err
	}
	var faults []error
	for _, fault := range Faults(err) {
		faults = append(faults, fmt.Errorf("%s: %w", place, fault))
	}
	return errors.Join(faults...)
}
