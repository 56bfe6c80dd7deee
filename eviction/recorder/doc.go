// Package recorder is the flight recorder: it keeps the facts and decisions of passes
// on disk in the format of scenarios. From them `evictd why` explains an eviction, and
// `evictd simulate` decides the same again, or otherwise under another configuration.
// It receives the loop's reports over a queue: a slow disk delays no other goroutine.
package recorder
