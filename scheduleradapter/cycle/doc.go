// Package cycle schedules pods, as kube-scheduler's schedule_one.go does. The
// scheduling cycle of a pod filters and scores the nodes, assumes the pod on the
// selected node, and runs Reserve and Permit. The binding cycle runs PreBind, Bind
// and PostBind.
//
// Scheduler has no clock and starts no goroutine; the loop and a simulation call
// it. Loop runs a Scheduler on a live cluster: one goroutine owns the table, the
// queue and the nominations, and informers and binding cycles post functions to
// it. Calls to the API server run on other goroutines.
//
// The package does not import client-go; package kube implements API.
package cycle
