// Package kube connects the scheduler with the API server: informers update the
// loop, Writer creates bindings, patches statuses, records events and deletes
// victims, and Volumes serves VolumeBinding. It decides nothing.
package kube
