// Package kube connects the scheduler with an API server: informers tell the loop
// of the cluster, a Writer binds, writes statuses and events, and makes victims
// go, Volumes does what binding volumes takes. It decides nothing.
package kube
