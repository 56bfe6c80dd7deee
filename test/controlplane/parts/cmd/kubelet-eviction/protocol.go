package main

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// question asks for the passes of inputs; without them, for those of the inputs before.
type question struct {
	Inputs *inputs
	view
}

// view is a part of the inputs.
type view struct {
	Passes int
	// Runs is how often new managers run through the passes. The manager chooses at random among
	// thresholds: the answers are then the different ones of the last pass. Zero asks for the
	// answers of all passes in one run.
	Runs              int
	Signals           []string    // that have thresholds; nil for all
	Hidden            []types.UID // pods that are not active in the last pass
	NoStorageRequests bool        // of pods, in the last pass
}

// inputs are a node and its passes. Its pods have a uid each.
type inputs struct {
	Config                         kubeletconfig.KubeletConfiguration
	DedicatedImageFs, SplitImageFs bool
	Pods                           []v1.Pod
	Passes                         []pass
}

// pass is what a pass of the manager finds.
type pass struct {
	At        time.Time
	Signals   map[string]signal
	Freed     map[string]map[string]int64 // by "containers" and "images"; what is absent fails
	Active    []types.UID
	Stats     []statsapi.PodStats
	KillFails []types.UID
}

// signal is a measurement, in bytes or counts. Signals of a filesystem have the same time.
type signal struct {
	Available, Capacity int64
	Time                metav1.Time
}

// answer is what a pass did.
type answer struct {
	Met        []threshold
	Conditions []string
	Reclaimed  []string
	Ranking    []string
	Evictions  []evicted
}

// threshold is one that acts.
type threshold struct {
	Signal    string `json:"signal"`
	Quantity  string `json:"quantity"`
	Available string `json:"available"`
}

// evicted is a pod that the manager asked to be killed.
type evicted struct {
	Pod                string            `json:"pod"`
	GracePeriodSeconds int64             `json:"gracePeriodSeconds"`
	Reason             string            `json:"reason"`
	Message            string            `json:"message"`
	DisruptionTarget   bool              `json:"disruptionTarget"`
	Annotations        map[string]string `json:"annotations"`
}
