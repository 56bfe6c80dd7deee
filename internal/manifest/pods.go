package manifest

import (
	"cmp"
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
// place; pods without one are returned all the same.
func Pods(data []byte) (pods []*v1.Pod, err error) {
	objects, err := Objects(data)
	faults := []error{err}
	for i := range objects {
		pod, err := objects[i].Pod()
		if err != nil {
			faults = append(faults, At(objects[i].Place, err))
			continue
		}
		pods = append(pods, pod)
	}
	return pods, errors.Join(faults...)
}

// Pod decodes a v1 Pod; an object that does not say what it is is taken for one. The
// namespace is "default" and the uid namespace/name if it has none.
func (o *Object) Pod() (*v1.Pod, error) {
	if o.TypeMeta != (metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}) && o.TypeMeta != (metav1.TypeMeta{}) {
		return nil, fmt.Errorf("kind %q of apiVersion %q is not a v1 Pod", o.Kind, o.APIVersion)
	}
	pod := &v1.Pod{}
	err := o.Decode(pod)
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
