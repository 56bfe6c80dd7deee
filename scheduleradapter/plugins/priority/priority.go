// Package priority is the plugin PrioritySort: it orders the queue by priority,
// then by timestamp.
package priority

import "github.com/evictd/evictd/scheduleradapter/framework"

// Name of the plugin.
const Name = "PrioritySort"

// Plugin is PrioritySort.
type Plugin struct{}

func New(any, framework.Env) (framework.Plugin, error) { return &Plugin{}, nil }

func (*Plugin) Name() string { return Name }

func (*Plugin) Less(a, b framework.Queued) bool {
	if a.Pod.Priority != b.Pod.Priority {
		return a.Pod.Priority > b.Pod.Priority
	}
	return a.Timestamp.Before(b.Timestamp)
}
