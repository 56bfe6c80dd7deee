package reclaim_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// now is the instant of every case, a day after the beginning.
var (
	beginning = time.Unix(1_000_000, 0)
	now       = beginning.Add(24 * time.Hour)
)

// fileCase is a case as written: times are how long ago, absent sizes unknown.
type fileCase struct {
	Policy     filePolicy            `json:"policy"`
	Pods       map[types.UID]filePod `json:"pods"`
	Incomplete bool                  `json:"incomplete"`
	Watched    metav1.Duration       `json:"watched"`
	Containers []fileContainer       `json:"containers"`
	Sandboxes  []fileSandbox         `json:"sandboxes"`
	Images     []fileImage           `json:"images"`
	Goal       fileGoal              `json:"goal"`
}

type filePolicy struct {
	MinAge      metav1.Duration `json:"minAge"`
	PerPod      *int            `json:"perPod"`
	Total       *int            `json:"total"`
	ImageMinAge metav1.Duration `json:"imageMinAge"`
	ImageMaxAge metav1.Duration `json:"imageMaxAge"`
	High        int64           `json:"high"`
	Low         int64           `json:"low"`
	Everything  bool            `json:"everything"`
	Keep        []string        `json:"keep"`
}

type filePod struct {
	Ended  bool     `json:"ended"`
	Images []string `json:"images"`
}

type fileContainer struct {
	ID          string             `json:"id"`
	Pod         types.UID          `json:"pod"`
	Name        string             `json:"name"`
	Sandbox     string             `json:"sandbox"`
	Image       string             `json:"image"`
	Attempt     uint32             `json:"attempt"`
	Created     *metav1.Duration   `json:"created"`
	Died        *metav1.Duration   `json:"died"`
	Layer       *resource.Quantity `json:"layer"`
	LayerInodes *resource.Quantity `json:"layerInodes"`
	Logs        *resource.Quantity `json:"logs"`
}

type fileSandbox struct {
	ID      string          `json:"id"`
	Pod     types.UID       `json:"pod"`
	Created metav1.Duration `json:"created"`
	Ready   bool            `json:"ready"`
}

type fileImage struct {
	ID     string             `json:"id"`
	Names  []string           `json:"names"`
	Size   *resource.Quantity `json:"size"`
	Inodes *resource.Quantity `json:"inodes"`
	Pinned bool               `json:"pinned"`
	Known  *metav1.Duration   `json:"known"`
	Used   *metav1.Duration   `json:"used"`
}

type fileGoal struct {
	Containers bool              `json:"containers"`
	Images     bool              `json:"images"`
	Pressure   bool              `json:"pressure"`
	Bytes      resource.Quantity `json:"bytes"`
	Inodes     resource.Quantity `json:"inodes"`
	Disk       string            `json:"disk"` // layers, logs or both (the default)
	Filesystem *fileFilesystem   `json:"filesystem"`
}

type fileFilesystem struct {
	Capacity   *resource.Quantity `json:"capacity"`
	Available  *resource.Quantity `json:"available"`
	Inodes     *resource.Quantity `json:"inodes"`
	InodesFree *resource.Quantity `json:"inodesFree"`
}

func ago(d *metav1.Duration) time.Time {
	if d == nil {
		return time.Time{}
	}
	return now.Add(-d.Duration)
}

func measured(q *resource.Quantity) stats.Amount {
	if q == nil {
		return stats.Amount{}
	}
	return stats.Known(q.Value())
}

func or(n *int, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return *n
}

func (f *fileCase) inventory() *reclaim.Inventory {
	inv := &reclaim.Inventory{Complete: !f.Incomplete, Watched: now.Add(-f.Watched.Duration), Pods: map[types.UID]reclaim.Pod{}}
	for uid, p := range f.Pods {
		inv.Pods[uid] = reclaim.Pod(p)
	}
	for _, c := range f.Containers {
		inv.Containers = append(inv.Containers, reclaim.Container{
			ID: c.ID, Pod: c.Pod, Name: c.Name, Sandbox: c.Sandbox, Image: c.Image, Attempt: c.Attempt,
			Created: ago(c.Created), Finished: ago(c.Died), Running: c.Died == nil,
			Layer: measured(c.Layer), LayerInodes: measured(c.LayerInodes), Logs: measured(c.Logs),
		})
	}
	for _, s := range f.Sandboxes {
		inv.Sandboxes = append(inv.Sandboxes, reclaim.Sandbox{ID: s.ID, Pod: s.Pod, Created: ago(&s.Created), Ready: s.Ready})
	}
	for _, i := range f.Images {
		inv.Images = append(inv.Images, reclaim.Image{
			ID: i.ID, References: i.Names, Size: measured(i.Size), Inodes: measured(i.Inodes), Pinned: i.Pinned,
			FirstDetected: ago(i.Known), LastUsed: ago(i.Used),
		})
	}
	inv.AddUsers()
	return inv
}

func (f *fileCase) policy() *reclaim.Policy {
	return &reclaim.Policy{
		ContainerMinAge: f.Policy.MinAge.Duration, MaxPerPodContainer: or(f.Policy.PerPod, 1), MaxContainers: or(f.Policy.Total, -1),
		ImageMinAge: f.Policy.ImageMinAge.Duration, ImageMaxAge: f.Policy.ImageMaxAge.Duration,
		HighPercent: f.Policy.High, LowPercent: f.Policy.Low, Everything: f.Policy.Everything, Keep: f.Policy.Keep,
	}
}

func (f *fileCase) goal(out *bytes.Buffer) reclaim.Goal {
	g := reclaim.Goal{Containers: f.Goal.Containers, Images: f.Goal.Images, Pressure: f.Goal.Pressure}
	if fs := f.Goal.Filesystem; fs != nil {
		need, known := f.policy().Need(stats.Filesystem{
			Capacity: measured(fs.Capacity), Available: measured(fs.Available), Inodes: measured(fs.Inodes), InodesFree: measured(fs.InodesFree),
		})
		fmt.Fprintf(out, "need %s and %d inodes, known %t\n", size(need.Bytes), need.Inodes, known)
		g.Need = need
	} else {
		g.Need.Bytes, g.Need.Inodes = f.Goal.Bytes.Value(), f.Goal.Inodes.Value()
	}
	g.Need.Layers, g.Need.Logs = f.Goal.Disk != "logs", f.Goal.Disk != "layers"
	return g
}

func size(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

func amount(a stats.Amount, unit string) string {
	n, known := a.Get()
	switch {
	case !known:
		return "unknown" + unit
	case unit == "":
		return size(n)
	}
	return fmt.Sprint(n) + unit
}

func write(out *bytes.Buffer, plan *reclaim.Plan) {
	for _, r := range plan.Removals {
		fmt.Fprintf(out, "remove %v %s: %v", r.Kind, r.ID, r.Why)
		if r.Kind != reclaim.KindSandbox {
			fmt.Fprintf(out, ", frees %s and %s", amount(r.Bytes, ""), amount(r.Inodes, " inodes"))
		}
		fmt.Fprintln(out)
	}
	for _, k := range plan.Kept {
		fmt.Fprintf(out, "keep %v %s: %v\n", k.Kind, k.ID, k.Why)
	}
	fmt.Fprintf(out, "frees %s and %d inodes\n", size(plan.Bytes), plan.Inodes)
}

// TestCases holds what is chosen in each case of testdata against the file
// beside it.
func TestCases(t *testing.T) {
	golden.Each(t, "testdata/*.yaml", func(t *testing.T, file string) {
		data := require.ReadFile(t, file)
		var f fileCase
		require.NoError(t, manifest.Decode(data, &f))
		var out bytes.Buffer
		goal := f.goal(&out)
		plan := reclaim.Choose(f.inventory(), f.policy(), goal, now)
		write(&out, &plan)
		golden.Check(t, golden.Beside(file, ".txt"), out.Bytes())
	})
}
