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

// The reference looks at every image of every node.
func TestScoresAreThoseOfTheReference(t *testing.T) {
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
		p := &v1.Pod{}
		var images []string
		for range 1 + r.IntN(3) {
			image := fmt.Sprint("image:", r.IntN(len(sizes)))
			images = append(images, image)
			switch r.IntN(4) {
			case 0:
				p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Image: image})
			case 1:
				p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: image}}})
			default:
				p.Spec.Containers = append(p.Spec.Containers, v1.Container{Image: image})
			}
		}
		if got, want := cluster.Evaluate(plugin, cluster.Digest(p)).Scores, reference(nodes, images); !maps.Equal(got, want) {
			t.Fatalf("step %d: scores %v, want %v", step, got, want)
		}
	}
}

func reference(nodes map[string]*v1.Node, images []string) map[string]int64 {
	having, size := map[string]int{}, map[string]int64{}
	for _, n := range nodes {
		for _, image := range n.Status.Images {
			having[image.Names[0]]++
			size[image.Names[0]] = image.SizeBytes
		}
	}
	scores := map[string]int64{}
	for name, n := range nodes {
		sum, top := int64(0), int64(len(images))*1000*mega
		for _, image := range images {
			for _, has := range n.Status.Images {
				if has.Names[0] == image {
					sum += int64(float64(size[image]) * (float64(having[image]) / float64(len(nodes))))
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
			c := cluster.Evaluate(plugin, cluster.Digest(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Image: "base:1"}, {Image: "web:1"}}}})).Cycle
			scores := make([]int64, len(c.Rows))
			b.ReportAllocs()
			for b.Loop() {
				plugin.Score(c, c.Rows, scores)
			}
		})
	}
}
