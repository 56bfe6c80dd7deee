// Package priority is the plugin PrioritySort: pods that matter more first, then
// those that wait longer.
package priority

import "github.com/evictd/evictd/scheduleradapter/framework"

// Name of the plugin.
const Name = "PrioritySort"

// Registration of the plugin.
var Registration = framework.Register[*Plugin](Name, New)

// Plugin is PrioritySort.
type Plugin struct{}

// New makes the plugin; it takes no arguments.
func New(any, framework.Env) (framework.Plugin, error) { return &Plugin{}, nil }

// Name of the plugin.
func (*Plugin) Name() string { return Name }

// Less says whether a is tried before b.
func (*Plugin) Less(a, b framework.Queued) bool {
	if a.Pod.Priority != b.Pod.Priority {
		return a.Pod.Priority > b.Pod.Priority
	}
	return a.Timestamp.Before(b.Timestamp)
}
