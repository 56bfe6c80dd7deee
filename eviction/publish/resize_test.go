package publish_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/publish"
	"github.com/evictd/evictd/internal/wire"
)

// rule: M.156
func TestAResizeIsRequestedAndALimitThatStaysIsAnEvent(t *testing.T) {
	client := &keptEvents{}
	p := newFixture(t, publish.Config{Cluster: client, Notice: func(*eviction.StepAction) { t.Error("a resize is no notice to the container") }}, nil)
	pod := &eviction.Pod{UID: "u", Namespace: "n", Name: "p", QOS: v1.PodQOSGuaranteed, Containers: []eviction.Container{{Name: "c", MemoryLimit: 100 * mebi}}}
	step := eviction.StepAction{Step: eviction.Resize, Pod: pod, Container: "c", Cause: eviction.Cause{Kind: eviction.ContainerLimit}, Bytes: 150 * mebi, Because: "it grows"}
	stays, over := step, step
	stays.Bytes, over.Over = 0, true
	for _, steps := range [][]eviction.StepAction{{step, stays}, {over}} {
		reports := make(chan control.Report, 1)
		reports <- control.Report{At: begun, Pass: eviction.Watch, Eviction: &eviction.Config{}, Decisions: []eviction.Decision{{Steps: steps}}}
		close(reports)
		p.Publisher.Run(reports)
	}
	want := wire.Resize{PodName: wire.PodName{UID: "u", Namespace: "n", Name: "p"}, Container: "c", From: 100 * mebi, To: 150 * mebi, Requests: true, Note: "Container c: its memory limit of 100Mi is raised to 150Mi: it grows."}
	if len(client.resizes) != 1 || client.resizes[0] != want {
		t.Errorf("resizes %+v, want %+v", client.resizes, want)
	}
	if len(client.events) != 1 || client.events[0].Reason != "MemoryLimitNear" || client.events[0].Note != "Container c: it grows" {
		t.Errorf("events %+v", client.events)
	}
	p.hasSeries(`evictd_steps_total{cause="limit",outcome="taken",step="resize"} 2`)
}
