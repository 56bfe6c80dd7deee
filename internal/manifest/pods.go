package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pods reads all pods of a file. The error joins every fault, each with its
// document where there are several.
func Pods(data []byte) (pods []*v1.Pod, err error) {
	var faults []error
	documents := Split(data)
	for i, document := range documents {
		found, err := PodsIn(document)
		pods = append(pods, found...)
		if len(documents) > 1 {
			err = prefixed(fmt.Sprintf("document %d", i+1), err)
		}
		faults = append(faults, err)
	}
	return pods, errors.Join(faults...)
}

// PodsIn reads the pods of one document, a v1 Pod or a v1 List of them; one that
// does not say what it is is taken for a Pod. The
// namespace is "default" and the uid namespace/name where the document gives
// none. The error joins every fault; pods without one are returned all the same.
func PodsIn(document []byte) ([]*v1.Pod, error) {
	about, err := TypeOf(document)
	if err != nil {
		return nil, err
	}
	switch about {
	case metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, metav1.TypeMeta{}:
		pod, err := decodePod(document)
		if err != nil {
			return nil, err
		}
		return []*v1.Pod{pod}, nil
	case metav1.TypeMeta{APIVersion: "v1", Kind: "List"}:
		return decodeList(document)
	}
	return nil, fmt.Errorf("kind %q of apiVersion %q is not a v1 Pod", about.Kind, about.APIVersion)
}

func decodeList(document []byte) (pods []*v1.Pod, err error) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	faults := []error{Decode(document, &list)}
	for i, item := range list.Items {
		found, err := PodsIn(item)
		pods = append(pods, found...)
		faults = append(faults, prefixed(fmt.Sprintf("items[%d]", i), err))
	}
	return pods, errors.Join(faults...)
}

func decodePod(document []byte) (*v1.Pod, error) {
	pod := &v1.Pod{}
	err := Decode(document, pod)
	pod.Namespace = cmp.Or(pod.Namespace, metav1.NamespaceDefault)
	pod.UID = cmp.Or(pod.UID, types.UID(pod.Namespace+"/"+pod.Name))
	return pod, errors.Join(err, checkName("metadata.namespace", pod.Namespace), checkName("metadata.name", pod.Name))
}

// maxName bounds a name, bytes, as an API server does.
const maxName = 253

// checkName refuses what cannot be part of an API path, and so of
// namespace/name, or of a line.
func checkName(field, name string) error {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case name == "":
		return fmt.Errorf("%s: required", field)
	case len(name) > maxName:
		return fmt.Errorf("%s: %d bytes are more than %d", field, len(name), maxName)
	case strings.ContainsFunc(name, unprintable):
		return fmt.Errorf("%s: %q must print", field, name)
	}
	if faults := content.IsPathSegmentName(name); len(faults) > 0 {
		return fmt.Errorf("%s: %q %s", field, name, strings.Join(faults, ", "))
	}
	return nil
}

func prefixed(place string, err error) error {
	var faults []error
	for _, fault := range Faults(err) {
		faults = append(faults, fmt.Errorf("%s: %w", place, fault))
	}
	return errors.Join(faults...)
}
