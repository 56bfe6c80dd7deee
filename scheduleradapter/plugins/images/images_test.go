package images

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

const mega = 1 << 20

// node has images with sizes in MiB.
func node(name string, images map[string]int64) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for image, size := range images {
		n.Status.Images = append(n.Status.Images, v1.ContainerImage{Names: []string{image}, SizeBytes: size * mega})
	}
	return n
}

func pod(images ...string) *v1.Pod {
	p := &v1.Pod{}
	for _, image := range images {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Image: image})
	}
	return p
}

func TestNodesThatHaveMoreOfThePodsImagesScoreHigher(t *testing.T) {
	initially := pod("small")
	initially.Spec.InitContainers = []v1.Container{{Image: "large"}}
	mounted := pod("small")
	mounted.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "large"}}}}
	for _, c := range []struct {
		name  string
		nodes []*v1.Node
		pod   *v1.Pod
		want  map[string]int64
	}{
		// Half of 500 MiB, because one of two nodes has it: 100*(250-23)/(1000-23) =
		// 23.
		{"an image counts by the share of nodes that have it", []*v1.Node{node("a", map[string]int64{"web:1": 500}), node("b", nil)}, pod("web:1"), map[string]int64{"a": 23, "b": 0}},
		{"in full where all have it", []*v1.Node{node("a", map[string]int64{"web:1": 500}), node("b", map[string]int64{"web:1": 500})}, pod("web:1"), map[string]int64{"a": 48, "b": 48}},
		{"less than 23 MiB are nothing", []*v1.Node{node("a", map[string]int64{"web:1": 45}), node("b", nil)}, pod("web:1"), map[string]int64{"a": 0, "b": 0}},
		{"more than 1000 MiB are as much", []*v1.Node{node("a", map[string]int64{"web:1": 4000}), node("b", nil)}, pod("web:1"), map[string]int64{"a": 100, "b": 0}},
		// (500+100-23)/(2000-23)
		{"each image raises the top", []*v1.Node{node("a", map[string]int64{"web:1": 1000, "db:1": 200}), node("b", nil)}, pod("web:1", "db:1"), map[string]int64{"a": 29, "b": 0}},
		{"an image used twice counts twice", []*v1.Node{node("a", map[string]int64{"web:1": 1000}), node("b", nil)}, pod("web:1", "web:1"), map[string]int64{"a": 49, "b": 0}},
		{"no tag is the latest", []*v1.Node{node("a", map[string]int64{"reg:5000/web:latest": 1000}), node("b", nil)}, pod("reg:5000/web"), map[string]int64{"a": 48, "b": 0}},
		{"another tag is another image", []*v1.Node{node("a", map[string]int64{"web:2": 1000}), node("b", nil)}, pod("web:1"), map[string]int64{"a": 0, "b": 0}},
		{"images of init containers count", []*v1.Node{node("a", map[string]int64{"large:latest": 2000}), node("b", nil)}, initially, map[string]int64{"a": 49, "b": 0}},
		{"so do images that are volumes", []*v1.Node{node("a", map[string]int64{"large:latest": 2000}), node("b", nil)}, mounted, map[string]int64{"a": 49, "b": 0}},
		{"nobody has any", []*v1.Node{node("a", nil), node("b", nil)}, pod("web:1"), map[string]int64{"a": 0, "b": 0}},
		{"a pod without containers", []*v1.Node{node("a", nil), node("b", nil)}, pod(), map[string]int64{"a": 0, "b": 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := plugintest.New(t, c.nodes...)
			if got := cluster.Evaluate(cluster.Make(New, nil), cluster.Digest(c.pod)).Scores; !maps.Equal(got, c.want) {
				t.Errorf("scores %v, want %v", got, c.want)
			}
		})
	}
}

// The twin looks at every image of every node.
func TestScoresAreThoseOfTheNaiveTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	cluster := plugintest.New(t)
	plugin := cluster.Make(New, nil)
	nodes := map[string]*v1.Node{}
	sizes := []int64{10, 100, 700, 3000}
	for step := range 1000 {
		name := fmt.Sprint("node-", r.IntN(100))
		has := map[string]int64{}
		for i, size := range sizes {
			if r.IntN(3) == 0 {
				has[fmt.Sprint("image:", i)] = size
			}
		}
		nodes[name] = node(name, has)
		cluster.Table.SetNode(nodetable.NewNode(nodes[name]))
		if gone := fmt.Sprint("node-", r.IntN(100)); step%3 == 0 && gone != name {
			delete(nodes, gone)
			cluster.Table.RemoveNode(nodetable.Intern(gone))
		}
		p := pod()
		for range 1 + r.IntN(3) {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Image: fmt.Sprint("image:", r.IntN(len(sizes)))})
		}
		if got, want := cluster.Evaluate(plugin, cluster.Digest(p)).Scores, twin(nodes, p); !maps.Equal(got, want) {
			t.Fatalf("step %d: scores %v, want %v", step, got, want)
		}
	}
}

func twin(nodes map[string]*v1.Node, p *v1.Pod) map[string]int64 {
	having, size := map[string]int{}, map[string]int64{}
	for _, n := range nodes {
		for _, image := range n.Status.Images {
			having[image.Names[0]]++
			size[image.Names[0]] = image.SizeBytes
		}
	}
	scores := map[string]int64{}
	for name, n := range nodes {
		sum, top := int64(0), int64(len(p.Spec.Containers))*1000*mega
		for _, container := range p.Spec.Containers {
			for _, image := range n.Status.Images {
				if image.Names[0] == container.Image {
					sum += int64(float64(size[container.Image]) * (float64(having[container.Image]) / float64(len(nodes))))
				}
			}
		}
		scores[name] = 100 * (min(max(sum, 23*mega), top) - 23*mega) / (top - 23*mega)
	}
	return scores
}

// BenchmarkImageLocality scores a pod with two images, one on all nodes and one on
// every third.
func BenchmarkImageLocality(b *testing.B) {
	for _, nodes := range []int{500, 5_000, 20_000} {
		b.Run(fmt.Sprint(nodes, " nodes"), func(b *testing.B) {
			cluster := plugintest.New(b)
			for i := range nodes {
				images := map[string]int64{"base:1": 200}
				if i%3 == 0 {
					images["web:1"] = 700
				}
				cluster.Table.SetNode(nodetable.NewNode(node(fmt.Sprint("node-", i), images)))
			}
			plugin := cluster.Make(New, nil).(*Plugin)
			c := cluster.Evaluate(plugin, cluster.Digest(pod("base:1", "web:1"))).Cycle
			scores := make([]int64, len(c.Rows))
			b.ReportAllocs()
			for b.Loop() {
				plugin.Score(c, c.Rows, scores)
			}
		})
	}
}
