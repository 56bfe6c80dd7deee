// Package recorder is the flight recorder: it keeps the facts and decisions of
// passes on disk in the format of scenarios. From them `evictd why` explains
// an eviction, and `evictd simulate` decides the same again, or otherwise under
// another configuration. It receives the loop's reports over a queue: a slow disk
// delays no other goroutine.
//
// There are eight files of 2 MiB, whose blocks are allocated from the start. Each begins
// with the configuration, the node and the pods that its steps need, so the oldest file can be
// overwritten. Each housekeeping pass and each decision is a step. Usage is written where it
// changed by more than 1 MiB or a hundredth, the usage of a decision completely, and synced.
package recorder
