package interpod

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

type change = func(*v1.Pod)

// pods is a term for pods with the label app, by a topology key.
func pods(app, key string) v1.PodAffinityTerm {
	return v1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
}

func with(terms ...v1.PodAffinityTerm) change {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	}
}

func without(terms ...v1.PodAffinityTerm) change {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	}
}

func pod(name, app string, changes ...change) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Namespace: "blue", Labels: map[string]string{"app": app}}}
	for _, change := range changes {
		change(p)
	}
	return p
}

// node makes a node from words like "n1 zone=a".
func node(text string) *v1.Node {
	words := strings.Fields(text)
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], Labels: map[string]string{v1.LabelHostname: words[0]}}}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		n.Labels[key] = value
	}
	return n
}

func TestHintsQueueWhereCompanyMayHaveChanged(t *testing.T) {
	cluster := plugintest.New(t, node("a1 zone=a"))
	cluster.Place(pod("running", "guard", without(pods("guarded", "rack"))), "a1")
	plugin := cluster.Make(New, &config.InterPodAffinityArgs{HardPodAffinityWeight: new(int32(1))}).(*Plugin)
	of := func(app string, changes ...change) *nodetable.Pod {
		return cluster.Digest(pod("other", app, changes...))
	}
	on := func(text string) *nodetable.Node { return nodetable.NewNode(node(text)) }
	changed := func(was, is *nodetable.Pod) framework.Occurrence {
		return framework.Occurrence{OldPod: was, Pod: is}
	}
	turned := func(was, is *nodetable.Node) framework.Occurrence {
		return framework.Occurrence{OldNode: was, Node: is}
	}
	waits := of("web", with(pods("db", "zone")))
	avoids := of("web", without(pods("db", "zone"), pods("cache", "zone")))
	sociable := of("web", with(pods("web", "zone")))
	cases := map[string]struct {
		pod  *nodetable.Pod
		o    framework.Occurrence
		want framework.Hint
	}{
		"a companion came":                          {waits, changed(nil, of("db")), framework.Queue},
		"another pod came":                          {waits, changed(nil, of("cache")), framework.QueueSkip},
		"a pod became a companion":                  {waits, changed(of("cache"), of("db")), framework.Queue},
		"a companion went":                          {waits, changed(of("db"), nil), framework.QueueSkip},
		"a companion of the pod's own kind went":    {sociable, changed(of("web"), nil), framework.Queue},
		"a pod to avoid came":                       {avoids, changed(nil, of("db")), framework.QueueSkip},
		"a pod to avoid went":                       {avoids, changed(of("cache"), nil), framework.Queue},
		"a pod need not be avoided any more":        {avoids, changed(of("db"), of("x")), framework.Queue},
		"a pod that keeps away went":                {of("web"), changed(of("db", without(pods("web", "zone"))), nil), framework.Queue},
		"a pod that keeps away from others went":    {of("web"), changed(of("db", without(pods("x", "zone"))), nil), framework.QueueSkip},
		"a node with the label came":                {waits, turned(nil, on("m zone=a")), framework.Queue},
		"a node without it came":                    {waits, turned(nil, on("m")), framework.QueueSkip},
		"a node came to a pod that avoids":          {avoids, turned(nil, on("m")), framework.Queue},
		"a node got the label":                      {waits, turned(on("m"), on("m zone=a")), framework.Queue},
		"a node got another label":                  {waits, turned(on("m zone=a"), on("m zone=a x=y")), framework.QueueSkip},
		"a node left the zone of one to avoid":      {avoids, turned(on("m zone=a"), on("m")), framework.Queue},
		"a node left the rack of one that is there": {of("guarded"), turned(on("m rack=1"), on("m")), framework.Queue},
		"and for another pod":                       {of("web"), turned(on("m rack=1"), on("m")), framework.QueueSkip},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			hint := plugin.podChanged
			if c.o.Node != nil {
				hint = plugin.nodeChanged
			}
			if got, err := hint(&c.o, c.pod); got != c.want || err != nil {
				t.Errorf("hint %v (%v), want %v", got, err, c.want)
			}
		})
	}
}
