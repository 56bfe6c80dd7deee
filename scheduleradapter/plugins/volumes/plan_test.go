package volumes

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// reserve evaluates a pod and reserves a node for it.
func (c *cluster) reserve(b *Binding, p *v1.Pod, node string) framework.Assignment {
	c.Helper()
	digest := c.Digest(p)
	if v := c.Evaluate(b, digest); !v.Status.OK() || v.Rejected[node] != "" {
		c.Fatalf("%s: %+v, rejected %q", p.Name, v.Status, v.Rejected)
	}
	a := c.assignment(digest, node)
	if s := b.Reserve(a); !s.OK() {
		c.Fatal(s)
	}
	return a
}

func TestReservedVolumeIsNoOthersUntilItIsGivenBack(t *testing.T) {
	const nothing = "never: node(s) didn't find available persistent volumes to bind"
	k := newCluster(t, 2)
	k.add(storageClass("local", noProvisioner, waits), newClaim("c", "local", "1Gi"), newClaim("d", "local", "1Gi"), persistent("v", "local", "1Gi", "a"))
	b := k.binding()
	a := k.reserve(b, pod("p", "c"), "a")
	other := k.Digest(pod("q", "d"))
	if got := k.Evaluate(b, other).Rejected["a"]; got != nothing {
		t.Errorf("the volume is reserved, but another pod is rejected for %q", got)
	}
	if got := k.Evaluate(b, k.Digest(pod("r", "c"))).Rejected["a"]; got != "" {
		t.Errorf("a pod with the same claim is rejected for %q", got)
	}
	b.Unreserve(a)
	if got := k.Evaluate(b, other).Rejected["a"]; got != "" {
		t.Errorf("the volume is given back, but another pod is rejected for %q", got)
	}
	if s := b.PreBind(t.Context(), a); !s.OK() || k.stored().Claim("ns", "c").Spec.VolumeName != "" {
		t.Errorf("something is written of what was given back: %+v", s)
	}
}

func TestVolumeBeingMadeIsMadeForOneNode(t *testing.T) {
	k := newCluster(t, 2)
	k.add(storageClass("made", "csi", waits), newClaim("c", "made", "1Gi"))
	b := k.binding()
	a := k.reserve(b, pod("p", "c"), "a")
	if got := result(k.Evaluate(b, k.Digest(pod("q", "c")))); !strings.HasPrefix(got, "b:never") {
		t.Errorf("result %q for another pod with the claim", got)
	}
	b.Unreserve(a)
	if got := result(k.Evaluate(b, k.Digest(pod("q", "c")))); got != "" {
		t.Errorf("result %q after it was given back", got)
	}
}

func TestAPodOfTheAPIServerEndsAReservation(t *testing.T) {
	versioned := func(v *v1.PersistentVolume, version string) *v1.PersistentVolume {
		v.ResourceVersion = version
		return v
	}
	k := newCluster(t, 1)
	claim := newClaim("c", "local", "1Gi")
	claim.ResourceVersion = "1"
	k.add(storageClass("local", noProvisioner, waits), claim, newClaim("d", "local", "1Gi"), versioned(persistent("v", "local", "1Gi"), "7"))
	b := k.binding()
	k.reserve(b, pod("p", "c"), "a")
	free := func() bool { return k.Evaluate(b, k.Digest(pod("q", "d"))).Rejected["a"] == "" }
	if k.add(versioned(persistent("v", "local", "1Gi"), "7")); free() {
		t.Error("the same version ended it")
	}
	if k.add(versioned(persistent("v", "local", "1Gi"), "8")); !free() {
		t.Error("a newer version did not end it")
	}
}

func TestPreBindWritesWhatWasReservedAndWaitsUntilItIsBound(t *testing.T) {
	k := newCluster(t, 2)
	k.add(storageClass("local", noProvisioner, waits), storageClass("made", "csi", waits), csiNode("a", map[string]int32{"csi": 5}),
		newClaim("c", "local", "1Gi"), newClaim("d", "made", "2Gi"), persistent("v", "local", "1Gi", "a"))
	b := k.binding()
	a := k.reserve(b, pod("p", "c", "d"), "a")
	if s := b.PreBind(t.Context(), a); !s.OK() {
		t.Fatal(s.Err)
	}
	v, c, d := k.stored().Volume("v"), k.stored().Claim("ns", "c"), k.stored().Claim("ns", "d")
	if ref := v.Spec.ClaimRef; ref == nil || ref.UID != c.UID || v.Annotations[boundByController] != "yes" || c.Spec.VolumeName != "v" {
		t.Errorf("claim c names %q, volume v %+v", c.Spec.VolumeName, ref)
	}
	if d.Annotations[selectedNode] != "a" || !isBound(d) {
		t.Errorf("claim d is %+v", d)
	}
	if got := result(k.Evaluate(b, k.Digest(pod("q", "d")))); got != "b:never: node(s) didn't match PersistentVolume's node affinity" {
		t.Errorf("result %q: the volume made is where its driver said", got)
	}
	if s := b.PreBind(t.Context(), a); !s.OK() {
		t.Errorf("nothing is left to do, but %v", s.Err)
	}
	if got := k.stored().Claim("ns", "c"); got != c {
		t.Error("it was written twice")
	}
}

// fakeAPI is an API with fixed results.
type fakeAPI struct {
	API
	volume, claim, await error
	written              []string
	view                 View
}

func (s *fakeAPI) UpdateVolume(_ context.Context, v *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	s.written = append(s.written, v.Name)
	return v, s.volume
}

func (s *fakeAPI) UpdateClaim(_ context.Context, c *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	s.written = append(s.written, c.Name)
	return c, s.claim
}

func (s *fakeAPI) Await(_ context.Context, timeout time.Duration, done func(View) (bool, error)) error {
	if s.await != nil || timeout != 10*time.Minute {
		return s.await
	}
	_, err := done(s.view)
	return err
}

func TestPreBindFailsWhereVolumesAreNotBound(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name    string
		api     fakeAPI
		written string
		want    string
	}{
		{"volumes cannot be written", fakeAPI{volume: broken}, "v", "bind persistent volume v: broken"},
		{"claims cannot be written", fakeAPI{claim: broken}, "v d", "select node of persistent volume claim ns/d: broken"},
		{"volumes are not bound in time", fakeAPI{await: context.DeadlineExceeded}, "v d", "binding volumes: context deadline exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newCluster(t, 1)
			k.api = &c.api
			k.add(storageClass("local", noProvisioner, waits), storageClass("made", "csi", waits), newClaim("c", "local", "1Gi"), newClaim("d", "made", "2Gi"), persistent("v", "local", "1Gi", "a"))
			b := k.binding()
			a := k.reserve(b, pod("p", "c", "d"), "a")
			s := b.PreBind(t.Context(), a)
			if s.Code != framework.Error || s.Message() != c.want || strings.Join(c.api.written, " ") != c.written {
				t.Errorf("%+v after %q, want %q after %q", s, c.api.written, c.want, c.written)
			}
			b.Unreserve(a)
			if got := result(k.Evaluate(b, k.Digest(pod("p", "c", "d")))); got != "" {
				t.Errorf("result %q when tried again", got)
			}
		})
	}
}

// fakeInformers have fixed objects.
type fakeInformers struct {
	claims  map[string]*v1.PersistentVolumeClaim
	volumes map[string]*v1.PersistentVolume
}

func (s fakeInformers) Claim(_, name string) *v1.PersistentVolumeClaim { return s.claims[name] }
func (s fakeInformers) Volume(name string) *v1.PersistentVolume        { return s.volumes[name] }

func TestClaimsAreBoundWhenTheAPIServerHasThemBound(t *testing.T) {
	written := persistent("v", "local", "1Gi")
	written.ResourceVersion = "7"
	madeClaim := newClaim("d", "made", "1Gi")
	madeClaim.ResourceVersion = "7"
	p := &plan{node: nodetable.NewNode(node("a", map[string]string{v1.LabelTopologyZone: "a"})), bindings: []binding{{written, newClaim("c", "local", "1Gi")}}, made: []*v1.PersistentVolumeClaim{madeClaim}}
	whole := func() fakeInformers {
		v := persistent("v", "local", "1Gi", "a")
		v.ResourceVersion, v.Spec.ClaimRef = "8", &v1.ObjectReference{Namespace: "ns", Name: "c", UID: "uid-c"}
		d := boundClaim("d", "w")
		d.ResourceVersion, d.Annotations[selectedNode] = "8", "a"
		return fakeInformers{map[string]*v1.PersistentVolumeClaim{"c": boundClaim("c", "v"), "d": d}, map[string]*v1.PersistentVolume{"v": v, "w": persistent("w", "made", "1Gi", "a")}}
	}
	for _, c := range []struct {
		name   string
		change func(fakeInformers)
		want   bool
		err    string
	}{
		{"all is bound", func(fakeInformers) {}, true, ""},
		{"the informer has an old volume", func(s fakeInformers) { s.volumes["v"].ResourceVersion, s.volumes["v"].Spec.ClaimRef = "6", nil }, false, ""},
		{"the volume's claim is gone", func(s fakeInformers) { s.volumes["v"].Spec.ClaimRef = nil }, false, `ClaimRef got reset for pv "v"`},
		{"the volume is gone", func(s fakeInformers) { delete(s.volumes, "v") }, false, `persistentvolume "v" not found`},
		{"the claim is gone", func(s fakeInformers) { delete(s.claims, "c") }, false, `persistentvolumeclaim "c" not found`},
		{"the claim is not bound yet", func(s fakeInformers) { delete(s.claims["c"].Annotations, bindCompleted) }, false, ""},
		{"the node's label is gone", func(s fakeInformers) {
			s.volumes["v"].Spec.NodeAffinity = persistent("", "", "0", "b").Spec.NodeAffinity
		}, false, `pv "v" node affinity doesn't match node "a"`},
		{"the informer has an old claim", func(s fakeInformers) { s.claims["d"].ResourceVersion, s.claims["d"].Annotations = "6", nil }, false, ""},
		{"the provisioner gave up", func(s fakeInformers) { delete(s.claims["d"].Annotations, selectedNode) }, false, `provisioning failed for PVC "d"`},
		{"the claim to be made is gone", func(s fakeInformers) { delete(s.claims, "d") }, false, `persistentvolumeclaim "d" not found`},
		{"the volume made is not known yet", func(s fakeInformers) { delete(s.volumes, "w") }, false, ""},
		{"the volume made is elsewhere", func(s fakeInformers) { s.volumes["w"] = persistent("w", "made", "1Gi", "b") }, false, `pv "w" node affinity doesn't match node "a"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			view := whole()
			c.change(view)
			got, err := p.done(view)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if got != c.want || text != c.err {
				t.Errorf("%t, %q, want %t, %q", got, text, c.want, c.err)
			}
		})
	}
}

func TestObjectsWhoseSelectorsDoNotParseMatchNoNode(t *testing.T) {
	volume, class, capacity := persistent("v", "", "1Gi", "a"), storageClass("odd", "csi", waits, "a"), space("x", "made", "a", "1Gi")
	volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Operator = "Near"
	class.AllowedTopologies[0].MatchLabelExpressions[0].Values = nil
	capacity.NodeTopology.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "disk", Operator: "Near"}}
	k := newCluster(t, 1)
	k.add(driver("csi", true), storageClass("made", "csi", waits), boundClaim("c", "v"), newClaim("d", "odd", "1Gi"), newClaim("e", "made", "1Gi"), volume, class, capacity)
	for claim, want := range map[string]string{
		"c": "a:never: node(s) didn't match PersistentVolume's node affinity",
		"d": "a:never: node(s) didn't find available persistent volumes to bind",
		"e": "a:never: node(s) did not have enough free storage",
	} {
		if got := result(k.Evaluate(k.binding(), k.Digest(pod("p", claim)))); got != want {
			t.Errorf("claim %s: result %q, want %q", claim, got, want)
		}
	}
}
