package nodetable

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkVolumes compares the users of the probe's volumes. Ephemeral claims have the
// name of their pod.
func (w *reference) checkVolumes(t *testing.T, table *Table, digest *Pod) {
	t.Helper()
	shared := map[Symbol]func(*v1.Pod, *v1.Volume) bool{}
	for _, c := range digest.Claims {
		shared[c.Key] = func(p *v1.Pod, v *v1.Volume) bool {
			return v.PersistentVolumeClaim != nil && ClaimKey(p.Namespace, v.PersistentVolumeClaim.ClaimName) == c.Key
		}
	}
	for _, d := range digest.Disks {
		if d.ID != (Symbol{}) {
			shared[d.ID] = func(_ *v1.Pod, v *v1.Volume) bool {
				return v.GCEPersistentDisk != nil && v.GCEPersistentDisk.PDName == d.Source.GCEPersistentDisk.PDName
			}
		}
	}
	for key, uses := range shared {
		var want, got []string
		for name := range w.nodes {
			for _, p := range w.on(name) {
				for i := range p.Spec.Volumes {
					if uses(p, &p.Spec.Volumes[i]) {
						want = append(want, name)
					}
				}
			}
		}
		for use := range table.Users(key).Rows() {
			for range use.Count {
				got = append(got, table.Node(use.Row).Name.Value())
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		equal(t, "users of "+key.Value(), got, want)
	}
}

func TestDigestNamesTheClaimsAndDisksOfAPod(t *testing.T) {
	volume := func(name string, s v1.VolumeSource) v1.Volume { return v1.Volume{Name: name, VolumeSource: s} }
	digest := NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "p"}, Spec: v1.PodSpec{Volumes: []v1.Volume{
		volume("a", v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}),
		volume("scratch", v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}),
		volume("token", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}),
		volume("gce", v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "disk"}}),
		volume("azure", v1.VolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{}}),
	}}})
	if want := []Claim{{ClaimKey("blue", "data"), "data", false}, {ClaimKey("blue", "p-scratch"), "p-scratch", true}}; !slices.Equal(digest.Claims, want) {
		t.Errorf("claims %v, want %v", digest.Claims, want)
	}
	if n := len(digest.Disks); n != 2 || digest.Disks[0].ID.Value() != "\x00gce/disk" || digest.Disks[1].ID != (Symbol{}) {
		t.Errorf("%d disks: %v", n, digest.Disks)
	}
}
