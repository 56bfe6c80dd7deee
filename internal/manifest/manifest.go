// Package manifest reads YAML and JSON documents strictly: an unknown field, a
// key given twice or a value of the wrong type is a fault, and all faults are
// reported, each with its field. It never reads files.
package manifest

import (
	"encoding/json"
	"errors"
	"slices"

	"go.yaml.in/yaml/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

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
	d := Document{raw: raw}
	if twice, ok := errors.AsType[*yaml.TypeError](err); ok {
		for _, text := range twice.Errors {
			d.twice = append(d.twice, errors.New(text))
		}
		d.raw, err = sigsyaml.YAMLToJSON(document)
	}
	if err == nil {
		err = checkEnd(document)
	}
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
