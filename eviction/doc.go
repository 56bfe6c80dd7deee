// Package eviction decides which pods a starving node ends, and why.
//
// It is a total function over values: Decide takes the state, what was
// observed, the configuration and the instant, and returns the next state and
// what to do. It never does I/O, never asks the clock, never logs, and never
// depends on the order of a map. What was not measured never evicts.
//
// The words used throughout:
//
//   - signal: a figure of the node that can starve, such as memory.available.
//   - threshold: the amount of a signal below which the node acts; hard at
//     once, soft after a grace period.
//   - observation: what a signal was at an instant, with its capacity.
//   - pressure: a node condition (MemoryPressure, DiskPressure, PIDPressure)
//     that thresholds raise and the transition period holds.
//   - reclaim: what the node can free without ending a pod: dead containers,
//     unused images.
//   - victim: the pod chosen to be ended.
//   - grace: how long a victim may take to end by itself.
//   - pass: one or several calls of Decide at one instant, each fed the
//     outcome of the one before.
//   - in flight: a victim whose end has not been confirmed yet.
//
// Rules follow the kubelet of Kubernetes 1.37 number for number; where they
// differ on purpose, the comment at the place says "Unlike the kubelet".
package eviction
