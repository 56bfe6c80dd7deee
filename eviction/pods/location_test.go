package pods

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var layout = Layout{
	PodsCgroup: "/node/kubepods",
	OwnCgroups: []string{"/node/kubepods/tools/evictd", "/other"},
	OwnSession: 77,
	Named: func(id types.UID, qos v1.PodQOSClass) string {
		return strings.ToLower(string(qos)) + "/pod" + string(id)
	},
	QOSClass: func(*v1.Pod) v1.PodQOSClass { return v1.PodQOSBurstable },
	Trusted:  func(pod *v1.Pod) bool { return pod.Labels["untrusted"] == "" },
}

func TestPodsLiveWhereTheirUIDOrATrustedAnnotationSays(t *testing.T) {
	const cgroup, session, hash = CgroupAnnotation, SessionAnnotation, configHashAnnotation
	type pods []string // as parsePod takes them
	for name, c := range map[string]struct {
		pods pods
		want []string // a line a pod: name cgroup session, or the refusal
	}{
		"by uid":                          {pods{"a u1"}, []string{"a burstable/podu1 0"}},
		"by config hash":                  {pods{"a u1 " + hash + "=h1"}, []string{"a burstable/podh1 0"}},
		"by annotation":                   {pods{"a u1 " + cgroup + "=x//y/../z/"}, []string{"a x/z 0"}},
		"by session":                      {pods{"a default/a " + session + "=4242"}, []string{"a  4242"}},
		"by both":                         {pods{"a u1 " + session + "=4242 " + cgroup + "=x"}, []string{"a x 4242"}},
		"annotations of an untrusted pod": {pods{"a u1 untrusted " + session + "=4242 " + cgroup + "=x"}, []string{"a burstable/podu1 0"}},
		"nowhere":                         {pods{"a default/a"}, []string{"a: pod has neither a uid nor an annotation that says where it lives"}},
		"above the pods' cgroup":          {pods{"a u1 " + cgroup + "=../x"}, []string{`a: annotation evictd.io/cgroup "../x" is not below the pods' cgroup`}},
		"above by a detour":               {pods{"a u1 " + cgroup + "=x/../.."}, []string{`a: annotation evictd.io/cgroup ".." is not below the pods' cgroup`}},
		"absolute":                        {pods{"a u1 " + cgroup + "=/x"}, []string{`a: annotation evictd.io/cgroup "/x" is not below the pods' cgroup`}},
		"a path for a hash":               {pods{"a u1 " + hash + "=../../../x"}, []string{"a burstable/podu1 0"}},
		"the pods' cgroup":                {pods{"a u1 " + cgroup + "=."}, []string{`a: annotation evictd.io/cgroup "." is the pods' cgroup itself`}},
		"empty":                           {pods{"a u1 " + cgroup + "="}, []string{`a: annotation evictd.io/cgroup "." is the pods' cgroup itself`}},
		"above the daemon":                {pods{"a u1 " + cgroup + "=tools"}, []string{`a: annotation evictd.io/cgroup "tools" holds the daemon itself`}},
		"the daemon's":                    {pods{"a u1 " + cgroup + "=tools/evictd"}, []string{`a: annotation evictd.io/cgroup "tools/evictd" holds the daemon itself`}},
		"beside the daemon's":             {pods{"a u1 " + cgroup + "=tools/evictd2"}, []string{"a tools/evictd2 0"}},
		"the same by two":                 {pods{"b u2 " + cgroup + "=x", "a u1 " + cgroup + "=x"}, []string{"a x 0", `b: annotation evictd.io/cgroup "x" overlaps that of pod default/a`}},
		"below another's":                 {pods{"a u1 " + cgroup + "=x", "b u2 " + cgroup + "=x/y/z"}, []string{"a x 0", `b: annotation evictd.io/cgroup "x/y/z" overlaps that of pod default/a`}},
		"above another's":                 {pods{"a u1 " + cgroup + "=x/y/z", "b u2 " + cgroup + "=x"}, []string{"a x/y/z 0", `b: annotation evictd.io/cgroup "x" overlaps that of pod default/a`}},
		"beside another's":                {pods{"a u1 " + cgroup + "=x/y", "b u2 " + cgroup + "=x/yz"}, []string{"a x/y 0", "b x/yz 0"}},
		"annotation yields to uid":        {pods{"a u1 " + cgroup + "=burstable", "b u2"}, []string{`a: annotation evictd.io/cgroup "burstable" overlaps that of pod default/b`, "b burstable/podu2 0"}},
		"hash yields to uid":              {pods{"a u1 " + hash + "=u2", "b u2"}, []string{`a: annotation kubernetes.io/config.hash "burstable/podu2" overlaps that of pod default/b`, "b burstable/podu2 0"}},
		"the refused claim nothing":       {pods{"a u1 " + cgroup + "=../x", "b u2 " + cgroup + "=x"}, []string{`a: annotation evictd.io/cgroup "../x" is not below the pods' cgroup`, "b x 0"}},
		"session by two":                  {pods{"a u1 " + session + "=9", "b u2 " + session + "=9"}, []string{"a burstable/podu1 9", `b: annotation evictd.io/session "9" overlaps that of pod default/a`}},
		"the daemon's session":            {pods{"a u1 " + session + "=77"}, []string{`a: annotation evictd.io/session "77" holds the daemon itself`}},
		"init's session":                  {pods{"a u1 " + session + "=1"}, []string{`a: annotation evictd.io/session "1" is not the process id of a session's leader`}},
		"no number":                       {pods{"a u1 " + session + "=x"}, []string{`a: annotation evictd.io/session "x" is not the process id of a session's leader`}},
		"a bad session spoils a cgroup":   {pods{"a u1 " + cgroup + "=x " + session + "=0"}, []string{`a: annotation evictd.io/session "0" is not the process id of a session's leader`}},
	} {
		var set []*v1.Pod
		for _, text := range c.pods {
			set = append(set, parsePod(text))
		}
		for range 2 {
			located := layout.Locate(set)
			for _, want := range c.want {
				at := slices.IndexFunc(set, func(pod *v1.Pod) bool { return pod.Name == want[:1] })
				if got := set[at].Name + describe(located[set[at].UID]); got != want {
					t.Errorf("%s: got  %s\nwant %s", name, got, want)
				}
			}
			slices.Reverse(set)
		}
	}
}

func TestALayoutWithoutTrustHonoursNoAnnotation(t *testing.T) {
	untrusting := layout
	untrusting.Trusted = nil
	pod := parsePod("a u1 " + CgroupAnnotation + "=x " + SessionAnnotation + "=9")
	if got := untrusting.Locate([]*v1.Pod{pod})["u1"]; got != (Location{Cgroup: "burstable/podu1"}) {
		t.Errorf("%+v", got)
	}
}

func TestWithoutCgroupsAPodLivesInItsSessionAlone(t *testing.T) {
	without := layout
	without.Named = func(types.UID, v1.PodQOSClass) string { return "" }
	located := without.Locate([]*v1.Pod{parsePod("a u1 " + SessionAnnotation + "=9"), parsePod("b u2")})
	if got := located["u1"]; got != (Location{Session: 9}) {
		t.Errorf("with a session: %+v", got)
	}
	if got := located["u2"].Refused; got == nil || got.Reason != Unnamed {
		t.Errorf("without one: %v", got)
	}
}

// parsePod takes a name, a uid, and annotations (key=value) or labels (key).
func parsePod(text string) *v1.Pod {
	fields := strings.Fields(text)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fields[0], UID: types.UID(fields[1])}}
	for _, field := range fields[2:] {
		if key, value, annotated := strings.Cut(field, "="); annotated {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
		} else {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, key, "true")
		}
	}
	return pod
}

func describe(l Location) string {
	if l.Refused != nil {
		return ": " + l.Refused.Error()
	}
	return fmt.Sprintf(" %s %d", l.Cgroup, l.Session)
}
