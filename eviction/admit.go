package eviction

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RejectedMessage begins the message of a pod that is not admitted, in its status and not in its
// event (kubelet).
const RejectedMessage = "Pod was rejected: "

const admissionMessage = RejectedMessage + "The node had condition: %v. "

// refusing are the conditions under which a kubelet does not admit the pod, none where it does:
// under MemoryPressure alone it admits all but BestEffort pods that do not tolerate the taint, under
// any other condition critical pods only.
func (st *State) refusing(p *Pod) (conditions []Condition) {
	for c := range st.Pressure {
		if st.Pressure[c].Reported {
			conditions = append(conditions, Condition(c))
		}
	}
	memoryAlone := len(conditions) == 1 && conditions[0] == MemoryPressure
	if p.Protection != "" || memoryAlone && (p.QOS != v1.PodQOSBestEffort || p.ToleratesMemoryPressure) {
		return nil
	}
	return conditions
}

// admit decides about the pods that have arrived as the kubelet's admission does. A refused
// pod stays refused until the node has no condition under which it is, or until it is evicted.
func (st *State) admit(in *Input) {
	if len(in.Arrived)+len(st.Refused) == 0 {
		return
	}
	admitted := func(uid types.UID) bool {
		at := slices.IndexFunc(in.Candidates, func(c Candidate) bool { return c.Pod.UID == uid })
		return at < 0 || in.Candidates[at].Pod.Terminal || st.indexInFlight(uid) >= 0 || len(st.refusing(in.Candidates[at].Pod)) == 0
	}
	st.Refused = without(st.Refused, admitted)
	for _, uid := range in.Arrived {
		if !admitted(uid) && !slices.Contains(st.Refused, uid) {
			st.Refused = append(slices.Clip(st.Refused), uid)
		}
	}
}

// reject evicts the refused pods that run, once a housekeeping pass and in the pass in which
// one arrives. It says whether the pass ends with that.
func (st *State) reject(cfg *Config, in *Input, d *Decision) (ends bool) {
	if len(st.Refused) == 0 || st.pass.rejected || st.pass.kind == Event && len(in.Arrived) == 0 {
		return false
	}
	if !in.Sampled {
		d.NeedUsage = true
		return true
	}
	st.pass.rejected = true
	st.InFlight, st.pass.chosen = slices.Clip(st.InFlight), slices.Clip(st.pass.chosen)
	for i := range in.Candidates {
		c := &in.Candidates[i]
		if !slices.Contains(st.Refused, c.Pod.UID) || !st.eligible(c.Pod) || !c.runs() {
			continue
		}
		conditions := st.refusing(c.Pod)
		e := Eviction{
			Pod: c.Pod, Signal: Admission, Hard: true, Since: in.Now, GracePeriodSeconds: 1, Message: fmt.Sprintf(admissionMessage, conditions),
			Annotations: map[string]string{}, Because: "it has arrived while the node has " + join(conditions) + ", and a kubelet would not admit it",
		}
		st.start(cfg, in, &e)
		d.Evictions = append(d.Evictions, e)
	}
	return len(d.Evictions) > 0
}

func join(conditions []Condition) string {
	var names []string
	for _, c := range conditions {
		names = append(names, c.String())
	}
	return strings.Join(names, " and ")
}
