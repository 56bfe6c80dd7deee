// Package recorder is the flight recorder: what the node measured, which pods it
// had and what was decided is kept on disk in the format of scenarios, so that it
// can be told why a pod went, and played again under another configuration. It
// stands on the far side of the loop's queues: it never decides, and however slow
// its disk is, it holds up nobody.
package recorder
