// Package eviction decides which pods a node under pressure evicts, when and with
// which grace, and when their resources count as free.
//
// Decide is a total function over values: it takes the configuration, the state and
// facts, and returns the next state and what to do. It does no I/O, reads no clock,
// does not log, and does not depend on the order of a map. A signal that was not
// measured evicts nothing. Driver runs passes: it calls Decide and has a Node answer.
//
// The words used throughout:
//
//   - signal: an amount that the node can use up, such as memory.available.
//   - threshold: the amount of a signal below which the node acts; hard at
//     once, soft after a grace period.
//   - observation: what a signal was at an instant, with its capacity.
//   - pressure: a node condition (MemoryPressure, DiskPressure, PIDPressure)
//     that thresholds raise and the transition period holds.
//   - reclaim: what the node can free without evicting a pod: dead containers,
//     unused images.
//   - victim: a pod that is chosen to be evicted.
//   - grace: the time from SIGTERM to SIGKILL.
//   - pass: one or several calls of Decide at one instant, each with the answers
//     to the one before.
//   - in flight: a victim that is being killed, or whose resources are not free yet.
//   - unknown pods: processes in the cgroup of a pod that is no candidate.
//
// Rules follow the kubelet of Kubernetes 1.37 number for number; where they
// differ on purpose, the comment at the place says "Unlike the kubelet".
package eviction
