// Package manifest reads YAML and JSON documents strictly: an unknown field, a
// duplicate key or a value of the wrong type is a fault, and every fault is
// reported with its field. It never reads files.
package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// Split separates the documents of a file at its "---" lines and leaves out
// those that hold nothing but comments.
func Split(data []byte) ([][]byte, error) {
	var documents [][]byte
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		if !blank(document) {
			documents = append(documents, document)
		}
	}
}

func blank(document []byte) bool {
	for line := range bytes.Lines(document) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

// Decode reads one document into a value. The error joins every fault.
func Decode(document []byte, into any) error {
	raw, err := sigsyaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(raw, into)
	return errors.Join(append(strict, err)...)
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
