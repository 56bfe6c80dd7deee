package pods

import (
	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/manifest"
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
	documents, err := manifest.Split(data)
	if err != nil {
		faults = append(faults, fault{file, len(documents) + 1, err})
	}
	for i, document := range documents {
		found, err := manifest.Pods(document)
		for _, pod := range found {
			pods = append(pods, parsed{pod, file, i + 1})
		}
		for _, err := range manifest.Faults(err) {
			faults = append(faults, fault{file, i + 1, err})
		}
	}
	return pods, faults
}
