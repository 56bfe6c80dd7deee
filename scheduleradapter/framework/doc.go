// Package framework is the scheduling framework over columns: the extension
// points a plugin may implement, what it answers, and the runner that calls the
// plugins of a profile in order. A plugin sees all nodes at once: Filter takes
// rows out of a set, Score fills an array.
//
// A built-in plugin belongs to one profile and serves one cycle at a time, so it
// may keep what it computed in PreFilter or PreScore for the points that follow.
// Reserve, Permit and everything before are called by the goroutine that owns
// the table; PreBind, Bind and PostBind by others, and must not touch it.
//
// The package does no I/O, knows no clock and no plugin.
package framework
