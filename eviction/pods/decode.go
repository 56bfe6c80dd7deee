package pods

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// parsed is a pod and where it was found.
type parsed struct {
	pod      *v1.Pod
	file     string
	document int
}

// decode reads all pods of a manifest file. What is not a pod, or not a valid
// one, becomes a fault.
func decode(file string, data []byte) (pods []parsed, faults []fault) {
	for i, doc := range documents(data) {
		found, errs := decodeDocument(doc)
		for _, pod := range found {
			pods = append(pods, parsed{pod, file, i + 1})
		}
		for _, err := range errs {
			faults = append(faults, fault{file, i + 1, err})
		}
	}
	return pods, faults
}

// documents splits a YAML stream, or a stream of JSON values, and leaves out
// what holds no more than comments and directives. Three hyphens at the
// beginning of a line begin a document, three dots end one.
func documents(data []byte) (docs [][]byte) {
	add := func(doc []byte) {
		if !isBlank(doc) {
			docs = append(docs, jsonValues(doc)...)
		}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	begin, at := 0, 0
	for line := range bytes.Lines(data) {
		switch {
		case isMarker(line, "---"):
			add(data[begin:at])
			begin = at + len("---")
		case isMarker(line, "..."):
			add(data[begin:at])
			begin = at + len(line)
		}
		at += len(line)
	}
	add(data[begin:])
	return docs
}

// isMarker says whether the line is the document marker, alone or before space.
func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n"))
}

func isBlank(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		text := bytes.TrimSpace(line)
		if len(text) > 0 && text[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// jsonValues splits a stream of JSON values: a YAML parser would drop all but
// the first without a word. Anything else stays one document.
func jsonValues(doc []byte) (values [][]byte) {
	for stream := json.NewDecoder(bytes.NewReader(doc)); ; {
		var value json.RawMessage
		err := stream.Decode(&value)
		if errors.Is(err, io.EOF) {
			return values
		}
		if err != nil {
			return [][]byte{doc}
		}
		values = append(values, value)
	}
}

// decodeDocument reads a v1 Pod, or a v1 List of them.
func decodeDocument(doc []byte) (pods []*v1.Pod, errs []error) {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &meta); err != nil {
		return nil, []error{cause(err)}
	}
	switch meta {
	case metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}:
		pod, err := decodePod(doc)
		if err != nil {
			return nil, []error{err}
		}
		return []*v1.Pod{pod}, nil
	case metav1.TypeMeta{APIVersion: "v1", Kind: "List"}:
		return decodeList(doc)
	}
	return nil, []error{fmt.Errorf("kind %q of apiVersion %q is not a v1 Pod", meta.Kind, meta.APIVersion)}
}

func decodeList(doc []byte) (pods []*v1.Pod, errs []error) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if err := yaml.UnmarshalStrict(doc, &list); err != nil {
		return nil, []error{cause(err)}
	}
	for i, item := range list.Items {
		found, faults := decodeDocument(item)
		pods = append(pods, found...)
		for _, err := range faults {
			errs = append(errs, fmt.Errorf("items[%d]: %w", i, err))
		}
	}
	return pods, errs
}

// decodePod reads one pod strictly. Of the API server's defaults it applies
// those that ranking needs.
func decodePod(doc []byte) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict(doc, pod); err != nil {
		if field := faultyField(doc, err); field != "" {
			return nil, fmt.Errorf("%s: %w", field, cause(err))
		}
		return nil, cause(err)
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	if err := checkName("metadata.namespace", pod.Namespace); err != nil {
		return nil, err
	}
	if err := checkName("metadata.name", pod.Name); err != nil {
		return nil, err
	}
	if pod.UID == "" {
		pod.UID = types.UID(fullName(pod))
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			defaultRequests(&containers[i].Resources)
		}
	}
	return pod, nil
}

// cause leaves out the YAML library's account of its own steps.
func cause(err error) error {
	for inner := err; inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}

// checkName refuses what cannot be part of an API path, and so of
// namespace/name.
func checkName(field, name string) error {
	if name == "" {
		return fmt.Errorf("%s: required", field)
	}
	if faults := content.IsPathSegmentName(name); len(faults) > 0 {
		return fmt.Errorf("%s: %q %s", field, name, strings.Join(faults, ", "))
	}
	return nil
}

// defaultRequests sets each request that is absent to its limit, as the API
// server does.
func defaultRequests(resources *v1.ResourceRequirements) {
	for name, limit := range resources.Limits {
		if _, given := resources.Requests[name]; given {
			continue
		}
		if resources.Requests == nil {
			resources.Requests = v1.ResourceList{}
		}
		resources.Requests[name] = limit.DeepCopy()
	}
}
