// Package framework is the scheduling framework: the extension points, the status
// codes, and the runner that calls the plugins of a profile in order. A plugin is
// called for all nodes at once: Filter removes rows from a set, Score fills a
// slice.
//
// A built-in plugin belongs to one profile and one cycle at a time. It may keep in
// PreFilter or PreScore what later extension points need. The goroutine that owns
// the table calls Reserve, Permit and all points before; other goroutines call
// PreBind, Bind and PostBind, which must not use the table.
package framework
