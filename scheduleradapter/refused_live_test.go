package scheduleradapter

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusals are how a server can refuse writes: all of them, or those whose method and path match.
var refusals = map[string]struct {
	code   int // 0 cuts the connection off
	reason metav1.StatusReason
	only   *regexp.Regexp
}{
	"forbidden":           {http.StatusForbidden, metav1.StatusReasonForbidden, all},
	"not found":           {http.StatusNotFound, metav1.StatusReasonNotFound, all},
	"a conflict":          {http.StatusConflict, metav1.StatusReasonConflict, all},
	"invalid":             {http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, all},
	"overloaded":          {http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, all},
	"a fault":             {http.StatusInternalServerError, metav1.StatusReasonInternalError, all},
	"away":                {http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, all},
	"cut off":             {only: all},
	"deletions forbidden": {http.StatusForbidden, metav1.StatusReasonForbidden, regexp.MustCompile("^DELETE")},
	"bindings forbidden":  {http.StatusForbidden, metav1.StatusReasonForbidden, regexp.MustCompile("/binding$")},
	"statuses forbidden":  {http.StatusForbidden, metav1.StatusReasonForbidden, regexp.MustCompile("/status$")},
	"volumes forbidden":   {http.StatusForbidden, metav1.StatusReasonForbidden, regexp.MustCompile("/persistentvolumes/")},
	"devices forbidden":   {http.StatusForbidden, metav1.StatusReasonForbidden, regexp.MustCompile("/resourceclaims/")},
}

var all = regexp.MustCompile("")

// object is the name of what a request is about, which differs from one event to another.
var object = regexp.MustCompile(`(events/)[^/]+$`)

// TestRefusedWritesAreFew has a server refuse writes of a scheduler whose pods are bound, wait, preempt, and get volumes
// and devices, and counts the requests of each kind.
//
// rule: S8.58
func TestRefusedWritesAreFew(t *testing.T) {
	const watched, most = 3 * time.Second, 30
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			c := newLiveCluster(t)
			c.node("a")
			c.node("b")
			on := func(node string, p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node} }
			size, once := c.localVolume()
			must(c.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1.PersistentVolumeClaimSpec{
				AccessModes: once, StorageClassName: new("local"), Resources: v1.VolumeResourceRequirements{Requests: size},
			}}, metav1.CreateOptions{}))(c)
			c.devices("b")
			c.pod("low", func(p *v1.Pod) { p.Spec.NodeName = "a" })
			var mu sync.Mutex
			counts := map[string]int{}
			refuse := func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodGet {
					return false
				}
				kind := r.Method + " " + object.ReplaceAllString(r.URL.Path, "$1*")
				mu.Lock()
				counts[kind]++
				mu.Unlock()
				if !refusal.only.MatchString(kind) {
					return false
				}
				if refusal.code == 0 {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(refusal.code)
				_ = json.NewEncoder(w).Encode(metav1.Status{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
					Code: int32(refusal.code), Reason: refusal.reason, Message: "refused by a test",
				})
				return true
			}
			c.pod("bound", func(p *v1.Pod) { on("b", p) })
			c.pod("waits", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"no": "node"} })
			c.pod("preempts", func(p *v1.Pod) {
				on("a", p)
				p.Spec.PriorityClassName = "system-cluster-critical"
				p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("2")
			})
			c.pod("has-a-volume", func(p *v1.Pod) {
				on("b", p)
				p.Spec.Containers[0].Resources.Requests = nil
				p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
			})
			c.pod("has-a-device", func(p *v1.Pod) {
				on("b", p)
				p.Spec.Containers[0].Resources.Requests = nil
				p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimName: new("d")}}
			})
			c.refuse.Store(&refuse)
			c.runs("--leader-elect=false")
			<-time.After(watched)
			mu.Lock()
			defer mu.Unlock()
			var kinds []string
			for _, kind := range slices.Sorted(maps.Keys(counts)) {
				kinds = append(kinds, fmt.Sprintf("%s: %d", kind, counts[kind]))
				if counts[kind] > most {
					t.Errorf("%s: %d requests in %v, expected %d at most", kind, counts[kind], watched, most)
				}
			}
			t.Log(kinds)
		})
	}
}

// devices offers a device on a node, and has a claim d of one.
func (c *liveCluster) devices(node string) {
	c.Helper()
	must(c.ResourceV1().DeviceClasses().Create(c.Context(), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}, metav1.CreateOptions{}))(c)
	must(c.ResourceV1().ResourceSlices().Create(c.Context(), &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "one"}},
	}}, metav1.CreateOptions{}))(c)
	must(c.ResourceV1().ResourceClaims("default").Create(c.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}},
	}}}, metav1.CreateOptions{}))(c)
}
