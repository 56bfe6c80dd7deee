// Package manifest reads YAML and JSON documents strictly: an unknown field, a
// key given twice or a value of the wrong type is a fault, and all faults are
// reported, each with its field. It never reads files.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"go.yaml.in/yaml/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// Split separates the documents of a YAML stream, or of a stream of JSON
// values, and leaves out what holds no more than comments and directives. Three
// hyphens at the beginning of a line begin a document, three dots end one.
func Split(data []byte) (documents [][]byte) {
	add := func(document []byte) {
		if !blank(document) {
			documents = append(documents, jsonValues(document)...)
		}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	begin, at := 0, 0
	for line := range bytes.Lines(data) {
		switch {
		case marks(line, "---"):
			add(data[begin:at])
			begin = at + len("---")
		case marks(line, "..."):
			add(data[begin:at])
			begin = at + len(line)
		}
		at += len(line)
	}
	add(data[begin:])
	return documents
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

// jsonValues splits a stream of JSON values: a YAML parser would drop all but
// the first without a word. Anything else stays one document.
func jsonValues(document []byte) (values [][]byte) {
	for stream := json.NewDecoder(bytes.NewReader(document)); ; {
		var value json.RawMessage
		err := stream.Decode(&value)
		if errors.Is(err, io.EOF) {
			return values
		}
		if err != nil {
			return [][]byte{document}
		}
		values = append(values, value)
	}
}

// Document is a document that has been parsed, to be decoded.
type Document struct {
	raw   []byte  // as JSON
	twice []error // keys that are given twice; the last of their values is in raw
}

// Parse reads a document's syntax.
func Parse(document []byte) (Document, error) {
	if json.Valid(document) {
		return Document{raw: document}, nil // the decoder sees keys given twice
	}
	raw, err := sigsyaml.YAMLToJSONStrict(document)
	twice, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return Document{raw: raw}, err
	}
	d := Document{}
	for _, text := range twice.Errors {
		d.twice = append(d.twice, errors.New(text))
	}
	d.raw, err = sigsyaml.YAMLToJSON(document)
	return d, err
}

// Type reads what a document says it is.
func (d *Document) Type() (metav1.TypeMeta, error) {
	var about metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(d.raw, &about); err != nil {
		return about, describe("", err)
	}
	return about, nil
}

// Decode reads a document into the value that into points to. The error joins
// every fault; what is not at fault has been read all the same.
func (d *Document) Decode(into any) error {
	faults, unknown := d.decode(into)
	return errors.Join(slices.Concat(d.twice, faults, unknown)...)
}

// DecodeLeniently reads a document in which unknown fields, and keys given twice, are
// no faults: it returns them.
func (d *Document) DecodeLeniently(into any) (ignored []error, err error) {
	faults, unknown := d.decode(into)
	return append(slices.Clone(d.twice), unknown...), errors.Join(faults...)
}

// decode returns the faults of values, and the fields that are not known or, in JSON, given twice.
func (d *Document) decode(into any) (faults, unknown []error) {
	unknown, err := kjson.UnmarshalStrict(d.raw, into)
	if err != nil {
		var rest []byte
		faults, rest = findFaults(d.raw, into)
		unknown, err = kjson.UnmarshalStrict(rest, into)
		faults = append(faults, err)
	}
	return faults, unknown
}

// TypeOf parses a document and reads what it says it is.
func TypeOf(document []byte) (metav1.TypeMeta, error) {
	d, err := Parse(document)
	if err != nil {
		return metav1.TypeMeta{}, err
	}
	return d.Type()
}

// Decode parses one document and decodes it.
func Decode(document []byte, into any) error {
	d, err := Parse(document)
	if err != nil {
		return err
	}
	return d.Decode(into)
}

// Faults takes an error apart again that errors.Join or field.ErrorList put
// together, one fault each.
func Faults(err error) []error {
	var (
		joined    interface{ Unwrap() []error }
		aggregate interface{ Errors() []error }
		several   []error
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &joined):
		several = joined.Unwrap()
	case errors.As(err, &aggregate):
		several = aggregate.Errors()
	default:
		return []error{err}
	}
	var faults []error
	for _, e := range several {
		faults = append(faults, Faults(e)...)
	}
	return faults
}
