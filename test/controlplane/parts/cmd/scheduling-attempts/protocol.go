package main

import "encoding/json"

// question asks for an attempt to schedule a pod.
type question struct {
	// Config is a KubeSchedulerConfiguration; empty: the default.
	Config string
	// Objects are those of the cluster, complete as an API server returns them.
	Objects []json.RawMessage
	// Pod is namespace/name; empty: a PodGroup is attempted.
	Pod string
	// PodGroup is namespace/name.
	PodGroup string
	// PodGroups: GenericWorkload is on.
	PodGroups bool
	// Runs is how often the pod is attempted. The scheduler chooses at random among equal nodes:
	// the answers are the different ones.
	Runs int
}

// answer is an attempt as `evictd-scheduler simulate -o json` prints it.
type answer struct {
	// Failed: the attempt ended with an error.
	Failed   bool
	Feasible []string
	Filtered map[string]rejection
	Scores   map[string]scores
	// Nominated is the node that PostFilter nominates, Victims are the pods that it deletes, by
	// name.
	Nominated string
	Victims   []string
	Message   string
	// Pods are those of the PodGroup, by namespace/name. Condition is that of the PodGroup
	// if it has changed.
	Pods      map[string]podEnd `json:",omitempty"`
	Condition condition
}

// podEnd is a node, or why there is none.
type podEnd struct{ Node, Nominated, Message string }

// condition PodGroupInitiallyScheduled.
type condition struct{ Status, Reason, Message string }

// rejection of a node.
type rejection struct {
	Plugin     string   `json:"plugin"`
	Reasons    []string `json:"reasons"`
	Resolvable bool     `json:"resolvable"`
}

// scores of a node, normalized and weighted.
type scores struct {
	Total   int64            `json:"total"`
	Plugins map[string]int64 `json:"plugins"`
}
