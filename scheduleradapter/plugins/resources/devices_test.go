package resources

import (
	"maps"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

func TestDevicesProvideAResourceWhereANodeAllocatesNone(t *testing.T) {
	cluster := plugintest.New(t, node("full", list(foo, "1")), node("none", list(foo, "0")), node("silent", nil))
	cluster.Place(pod("running", list(foo, "1")), "full")
	p := cluster.Digest(pod("p", list(foo, "1")))
	const lacks = "Insufficient " + foo
	for _, c := range []struct {
		what string
		env  framework.Env
		want map[string]string
	}{
		{"without a class", framework.Env{Table: cluster.Table}, map[string]string{"full": lacks, "none": "never: " + lacks, "silent": "never: " + lacks}},
		{"with a class", framework.Env{Table: cluster.Table, HasDeviceClass: func(name nodetable.Symbol) bool { return name.Value() == foo }}, map[string]string{"full": lacks}},
	} {
		fit, err := NewFit(leastArgs, c.env)
		require.NoError(t, err)
		if got := cluster.Evaluate(fit, p).Rejected; !maps.Equal(got, c.want) {
			t.Errorf("%s: rejected %q, want %q", c.what, got, c.want)
		}
	}
}

func TestADeviceClassQueuesThePodsThatRequestItsResource(t *testing.T) {
	cluster := plugintest.New(t)
	class := func(name string, resource *string) *resourceapi.DeviceClass {
		return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: resource}}
	}
	wants, implicit := cluster.Digest(pod("p", list(foo, "1"))), cluster.Digest(pod("q", list("deviceclass.resource.kubernetes.io/gpu", "1")))
	for _, c := range []struct {
		name    string
		old, is any
		pod     *nodetable.Pod
		want    framework.Hint
	}{
		{"a class of the resource came", nil, class("gpu", new(foo)), wants, framework.Queue},
		{"a class of another resource came", nil, class("gpu", new("example.org/other")), wants, framework.QueueSkip},
		{"the class came that the resource names", nil, class("gpu", nil), implicit, framework.Queue},
		{"another class came", nil, class("nic", nil), implicit, framework.QueueSkip},
		{"a class has the resource now", class("gpu", nil), class("gpu", new(foo)), wants, framework.Queue},
		{"a class had the resource before", class("gpu", new(foo)), class("gpu", new(foo)), wants, framework.QueueSkip},
	} {
		got, err := classProvides(&framework.Occurrence{Event: framework.Event{Resource: framework.DeviceClass}, OldObject: c.old, Object: c.is}, c.pod)
		if err != nil || got != c.want {
			t.Errorf("%s: hint %d (%v), want %d", c.name, got, err, c.want)
		}
	}
}
