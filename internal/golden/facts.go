package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Facts is Check of lines of JSON, which the file holds as YAML: a document for
// each line, a field on each line of it, in the order of the JSON. Lines that begin
// with "#" stay as they are. The test fails unless the YAML, parsed, gives back
// every byte of the lines.
func Facts(t testing.TB, file string, lines []byte) {
	t.Helper()
	facts, err := fromLines(string(lines))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	back, err := toLines(facts)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if back != string(lines) {
		line, isBack, was := difference(back, string(lines))
		t.Fatalf("%s loses something of line %d\nparsed:\n%s\nprinted:\n%s", file, line, isBack, was)
	}
	Check(t, file, facts)
}

const documentStart = "---\n"

func fromLines(lines string) (string, error) {
	var facts strings.Builder
	for line := range strings.Lines(lines) {
		if strings.HasPrefix(line, "#") {
			facts.WriteString(line)
			continue
		}
		document, err := fromJSON(line)
		if err != nil {
			return "", fmt.Errorf("read %q: %w", line, err)
		}
		facts.WriteString(documentStart)
		encoder := yaml.NewEncoder(&facts)
		encoder.SetIndent(2)
		encoder.CompactSeqIndent()
		if err := errors.Join(encoder.Encode(document), encoder.Close()); err != nil {
			return "", fmt.Errorf("write %q as YAML: %w", line, err)
		}
	}
	return facts.String(), nil
}

func toLines(facts string) (string, error) {
	var lines, document strings.Builder
	for line := range strings.Lines(facts + documentStart) { // which ends the last one
		comment := strings.HasPrefix(line, "#")
		if !comment && line != documentStart {
			document.WriteString(line)
			continue
		}
		if document.Len() > 0 {
			var node yaml.Node
			if err := yaml.Unmarshal([]byte(document.String()), &node); err != nil {
				return "", fmt.Errorf("read YAML %q: %w", document.String(), err)
			}
			lines.Write(append(appendJSON(nil, &node), '\n'))
			document.Reset()
		}
		if comment {
			lines.WriteString(line)
		}
	}
	return lines.String(), nil
}

// fromJSON is a value of JSON as YAML. Numbers keep every digit.
func fromJSON(text string) (*yaml.Node, error) {
	if !json.Valid([]byte(text)) {
		return nil, errors.New("not a value of JSON")
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	return decode(decoder)
}

func decode(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch value := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if value == '{' {
			node.Kind = yaml.MappingNode // its content are keys and values in turn, as they stand in the text
		}
		for decoder.More() {
			element, err := decode(decoder)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, element)
		}
		_, err := decoder.Token()
		return node, err
	case string:
		// The tag has the encoder quote what YAML would take for a number, a date and so on.
		node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
		if strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
			node.Style = yaml.DoubleQuotedStyle // on a single line
		}
		return node, nil
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(value.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(value)}, nil
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
}

// appendJSON appends what was read from YAML that fromLines wrote.
func appendJSON(text []byte, node *yaml.Node) []byte {
	switch node.Kind {
	case yaml.DocumentNode:
		return appendJSON(text, node.Content[0])
	case yaml.MappingNode:
		text = append(text, '{')
		for i, part := range node.Content {
			if i > 0 {
				text = append(text, ",:"[i%2])
			}
			text = appendJSON(text, part)
		}
		return append(text, '}')
	case yaml.SequenceNode:
		text = append(text, '[')
		for i, element := range node.Content {
			if i > 0 {
				text = append(text, ',')
			}
			text = appendJSON(text, element)
		}
		return append(text, ']')
	default:
		if slices.Contains([]string{"!!int", "!!float", "!!bool", "!!null"}, node.Tag) {
			return append(text, node.Value...)
		}
		return append(text, quoted(node.Value)...)
	}
}

// quoted is a string as JSON in which <, > and & stay what they are, as the
// programs print it.
func quoted(s string) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.Encode(s) // a string into memory does not fail
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
