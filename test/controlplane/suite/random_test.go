package suite_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// A world is a namespace of its own, and what is sent to it. {ns} is its name, {rv:KIND/NAME} and
// {uid:KIND/NAME} are of the object as the server has last answered.
type world struct {
	Quota    object    `json:"quota"`  // of a ResourceQuota that is there before the requests, beside noSecrets
	Limits   []any     `json:"limits"` // of a LimitRange, beside smallClaims
	Requests []request `json:"requests"`
}

type object = map[string]any

// By these parts of a ResourceQuota and a LimitRange the refusal of a probe shows that kube-apiserver
// enforces them.
const noSecrets = "count/secrets"

var smallClaims = object{"type": "PersistentVolumeClaim", "max": object{"storage": "2Gi"}}

// resources are the kinds of random requests, with their paths in {ns}.
var resources = withPlain(map[string]string{
	"configmaps": "/api/v1/namespaces/{ns}/configmaps", "pods": "/api/v1/namespaces/{ns}/pods", "deployments": "/apis/apps/v1/namespaces/{ns}/deployments",
	"limitranges":            "/api/v1/namespaces/{ns}/limitranges",
	"persistentvolumeclaims": "/api/v1/namespaces/{ns}/persistentvolumeclaims", "jobs": "/apis/batch/v1/namespaces/{ns}/jobs",
	"statefulsets": "/apis/apps/v1/namespaces/{ns}/statefulsets", "daemonsets": "/apis/apps/v1/namespaces/{ns}/daemonsets", "replicasets": "/apis/apps/v1/namespaces/{ns}/replicasets",
	"poddisruptionbudgets": "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets", "nodes": "/api/v1/nodes", "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
})

// watched are the kinds whose changes a world compares.
var watched = []string{"configmaps", "pods", "deployments"}

// random makes worlds. Of each object it knows the last body that it has made.
type random struct {
	*rand.Rand
	made map[string][]byte
}

func newWorld(seed uint64) world {
	r := random{rand.New(rand.NewPCG(seed, 18)), map[string][]byte{}}
	var w world
	kinds := []string{"configmaps", "pods", "pods", "deployments", "deployments"}
	if r.chance(3) {
		kinds = append(kinds, "jobs", "persistentvolumeclaims")
	}
	if r.chance(3) {
		w.Limits = r.limits("500m")
		kinds = append(kinds, "pods", "persistentvolumeclaims")
	}
	if r.chance(3) {
		kinds = append(kinds, slices.Sorted(maps.Keys(plain))...)
	}
	if r.chance(3) {
		kinds = append(kinds, "poddisruptionbudgets", "nodes", "priorityclasses", "statefulsets", "daemonsets", "replicasets")
	}
	only := r.request
	if r.chance(3) {
		w.Quota = r.quota()
		only = r.uses
		kinds = append(kinds, "pods", "persistentvolumeclaims")
	}
	for range 12 + r.IntN(24) {
		w.Requests = append(w.Requests, only(pick(r, kinds...)))
	}
	for i := range w.Requests {
		w.Requests[i].Do = fmt.Sprint(i)
	}
	return w
}

func pick[T any](r random, from ...T) T { return from[r.IntN(len(from))] }

// chance is true once in n times.
func (r random) chance(n int) bool { return r.IntN(n) == 0 }

func (r random) request(kind string) request {
	name, prefix := pick(r, "a", "b", "c", "d", "e"), ""
	if isClusterScoped(kind) {
		prefix = "{ns}-"
		name = prefix + name
	}
	path := resources[kind] + "/" + name
	switch n := r.IntN(20); {
	case n < 5:
		return r.sends("POST", resources[kind]+r.options(), "", r.whole(kind, prefix+pick(r, "a", "b", "c")))
	case n < 7:
		return r.sends("PUT", path+r.options(), "", r.identified(kind, name, r.again(kind, name)))
	case n < 10:
		return r.applies(kind, name, path)
	case n < 13:
		return r.patches(kind, name, path)
	case n < 15:
		return r.deletes(kind, name, path)
	case n < 17:
		return r.subresource(kind, name, path)
	case n < 18 || isClusterScoped(kind):
		return request{Request: "GET " + path}
	}
	return request{Request: "GET " + resources[kind] + pick(r, "", "?labelSelector=app%3Da", "?labelSelector=app+notin+(a)", "?fieldSelector=metadata.name%3Db",
		"?limit=1", "?fieldSelector=metadata.name!%3Da", "?labelSelector=!app", "?fieldSelector=nonsense%3Da", "?limit=2&labelSelector=app")}
}

// uses is a request that frees nothing: nothing but a controller that kube-apiserver does not have
// computes what is freed of a quota.
func (r random) uses(kind string) request {
	name := fmt.Sprint("n", r.Uint32()) // a new one: kube-apiserver counts a refused duplicate, too
	switch r.IntN(6) {
	case 0:
		return r.applies(kind, name, resources[kind]+"/"+name)
	case 1:
		return r.sends("POST", resources["limitranges"]+"?dryRun=All", "", r.whole("limitranges", name))
	}
	return r.sends("POST", resources[kind]+r.options(), "", r.whole(kind, name))
}

// again is mostly the body that was made last of an object, with a change or without.
func (r random) again(kind, name string) object {
	text := r.made[kind+"/"+name]
	if text == nil || r.chance(4) {
		return r.whole(kind, name)
	}
	var body object
	if err := json.Unmarshal(text, &body); err != nil {
		panic(err)
	}
	if r.chance(2) {
		return body
	}
	spec, _ := body["spec"].(object)
	other, _ := r.whole(kind, name)["spec"].(object)
	if fields := slices.Sorted(maps.Keys(spec)); len(fields) > 0 {
		field := pick(r, fields...)
		delete(spec, field)
		if value := other[field]; value != nil {
			spec[field] = value
		}
	}
	return body
}

func (r random) sends(method, path, as string, body any) request {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return request{Request: method + " " + path, As: as, Body: text}
}

// options are those of a write.
func (r random) options() string {
	return "?fieldManager=" + pick(r, "one", "two") + pick(r, "", "", "", "", "&dryRun=All", "&fieldValidation=Strict", "&dryRun=Some", "&fieldValidation=Ignore")
}

// identified adds what makes a write conditional.
func (r random) identified(kind, name string, body object) object {
	meta := body["metadata"].(object)
	name = strings.TrimPrefix(name, "{ns}-")
	switch r.IntN(5) {
	case 0:
		meta["resourceVersion"] = "{rv:" + kind + "/" + name + "}"
	case 1:
		meta["resourceVersion"] = "1"
	case 2:
		meta["uid"] = "{uid:" + kind + "/" + name + "}"
	}
	return body
}

// applies is an application, also without force.
func (r random) applies(kind, name, path string) request {
	body := r.whole(kind, name)
	if r.chance(3) {
		delete(body, "spec")
	}
	if r.chance(12) {
		body["nonsense"] = "x"
	}
	options := "?fieldManager=" + pick(r, "one", "two", "three")
	options += pick(r, "", "", "&force=true", "&force=true", "&dryRun=All")
	if r.chance(15) {
		options = ""
	}
	return r.sends("PATCH", path+options, "application/apply-patch+yaml", body)
}

func (r random) patches(kind, name, path string) request {
	labels := object{"metadata": object{"labels": object{"app": pick[any](r, "a", "b", nil), "more": pick[any](r, "x", nil)}}}
	switch r.IntN(6) {
	case 0:
		return r.sends("PATCH", path+r.options(), "json", []object{{"op": pick(r, "add", "replace", "remove"), "path": "/metadata/labels/app", "value": "a"}})
	case 1:
		if kind == "pods" {
			return r.sends("PATCH", path+r.options(), pick(r, "merge", "strategic"), object{"spec": r.part(podParts)})
		}
		if kind == "nodes" {
			return r.sends("PATCH", path+r.options(), pick(r, "merge", "strategic"), object{"spec": r.part(nodeParts)})
		}
		if kind == "deployments" {
			return r.sends("PATCH", path+r.options(), "strategic", object{"spec": object{"template": object{"spec": object{"containers": []any{object{"name": "c", "image": pick(r, "i:1", "i:2")}}}}}})
		}
	case 2:
		return r.sends("PATCH", path+r.options(), "merge", r.identified(kind, name, object{"metadata": object{"finalizers": pick[any](r, nil, []string{"example.com/f"})}}))
	case 3:
		return r.sends("PATCH", path+r.options(), "merge", object{"spec": object{"activeDeadlineSeconds": pick(r, 5, 50), "replicas": r.IntN(3)}})
	}
	return r.sends("PATCH", path+r.options(), pick(r, "merge", "strategic"), labels)
}

func (r random) deletes(kind, name, path string) request {
	if r.chance(8) && !isClusterScoped(kind) {
		return request{Request: "DELETE " + resources[kind] + pick(r, "?", "?labelSelector=app%3Da&") + "propagationPolicy=Background"}
	}
	name = strings.TrimPrefix(name, "{ns}-")
	body := object{"apiVersion": "v1", "kind": "DeleteOptions"}
	if kind == "jobs" { // else a job waits for a controller that kube-apiserver does not have
		body["propagationPolicy"] = "Background"
	}
	switch r.IntN(6) {
	case 0:
		body["gracePeriodSeconds"] = pick(r, 0, 1, 30, -1)
	case 1:
		body["preconditions"] = object{"uid": pick(r, "{uid:"+kind+"/"+name+"}", "wrong")}
	case 2:
		body["preconditions"] = object{"resourceVersion": pick(r, "{rv:"+kind+"/"+name+"}", "1")}
	case 3:
		body["dryRun"] = []string{pick(r, "All", "None")}
	case 4:
		body["propagationPolicy"] = pick(r, "Background", "Background", "Nonsense")
	}
	return r.sends("DELETE", path, "", body)
}

// whole is an object, mostly a valid one.
func (r random) whole(kind, name string) object {
	meta := object{"name": name}
	if r.chance(2) {
		meta["labels"] = object{"app": pick(r, "a", "b")}
	}
	if r.chance(10) {
		meta["finalizers"] = []string{"example.com/f"}
	}
	if r.chance(6) {
		meta["annotations"] = object{"note": pick(r, "x", "y")}
	}
	if r.chance(20) {
		meta["name"] = pick(r, "A_b", "", fmt.Sprint("other", r.Uint32()))
	}
	if kind == "services" && meta["name"] == "" { // kube-apiserver allocates an address before it sees that
		meta["name"] = name
	}
	if r.chance(25) {
		meta["namespace"] = "elsewhere"
	}
	body := object{"metadata": meta}
	if r.chance(25) {
		body["unknown"] = 1
	}
	switch kind {
	case "configmaps":
		body["apiVersion"], body["kind"] = "v1", "ConfigMap"
		body["data"] = pick(r, object{"k": pick(r, "1", "2")}, object{"l": "3"}, object{})
		if r.chance(8) {
			body["immutable"] = true
		}
	case "pods":
		body["apiVersion"], body["kind"], body["spec"] = "v1", "Pod", r.podSpec(true)
	case "deployments":
		body["apiVersion"], body["kind"], body["spec"] = "apps/v1", "Deployment", r.deploymentSpec()
	case "jobs":
		spec := r.podSpec(false)
		spec["restartPolicy"] = "Never"
		body["apiVersion"], body["kind"] = "batch/v1", "Job"
		body["spec"] = r.varied(object{"template": object{"spec": spec}, "completions": 1 + r.IntN(2)}, jobParts)
	case "statefulsets":
		body["apiVersion"], body["kind"], body["spec"] = "apps/v1", "StatefulSet", r.varied(r.setSpec(), statefulSetParts)
	case "daemonsets":
		body["apiVersion"], body["kind"], body["spec"] = "apps/v1", "DaemonSet", r.varied(r.setSpec(), daemonSetParts)
	case "replicasets":
		body["apiVersion"], body["kind"], body["spec"] = "apps/v1", "ReplicaSet", r.varied(r.setSpec(), replicaSetParts)
	case "persistentvolumeclaims":
		body["apiVersion"], body["kind"] = "v1", "PersistentVolumeClaim"
		body["spec"] = object{"accessModes": []string{"ReadWriteOnce"}, "resources": object{"requests": object{"storage": pick(r, "1Gi", "3Gi")}}, "storageClassName": ""}
	case "poddisruptionbudgets":
		body["apiVersion"], body["kind"], body["spec"] = "policy/v1", "PodDisruptionBudget", r.part(budgetParts)
	case "nodes":
		body["apiVersion"], body["kind"], body["spec"] = "v1", "Node", r.part(nodeParts)
		if r.chance(2) {
			body["status"] = r.part(nodeStatusParts)
		}
	case "priorityclasses":
		body["apiVersion"], body["kind"] = "scheduling.k8s.io/v1", "PriorityClass"
		maps.Copy(body, r.part(priorityParts))
	case "limitranges":
		body["apiVersion"], body["kind"] = "v1", "LimitRange"
		body["spec"] = object{"limits": append(r.limits("3"), smallClaims)}
	default:
		body["apiVersion"], body["kind"] = plain[kind].version, plain[kind].kind
		maps.Copy(body, r.plainFields(resources[kind]))
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	r.made[kind+"/"+name] = text
	return body
}

// setSpec is the spec of a controller of apps/v1.
func (r random) setSpec() object {
	labels := object{"app": pick(r, "a", "a", "a", "b")}
	return object{"selector": object{"matchLabels": object{"app": "a"}}, "template": object{"metadata": object{"labels": labels}, "spec": r.podSpec(false)}}
}

func (r random) deploymentSpec() object {
	spec := r.setSpec()
	if r.chance(2) {
		spec["replicas"] = r.IntN(4)
	}
	if r.chance(4) {
		spec["strategy"] = pick(r, object{"type": "Recreate"}, object{"type": "RollingUpdate", "rollingUpdate": object{"maxSurge": "50%"}})
	}
	if r.chance(5) {
		spec["paused"] = true
	}
	return r.varied(spec, deploymentParts)
}

func (r random) podSpec(own bool) object {
	spec := object{"containers": []any{r.container("c")}}
	if r.chance(4) {
		spec["containers"] = []any{r.container("c"), r.container(pick(r, "d", "d", "d", "c"))}
	}
	if r.chance(5) {
		spec["initContainers"] = []any{r.container("i")}
	}
	if own && r.chance(6) {
		spec["nodeName"] = "n1"
	}
	if own && r.chance(6) {
		spec["activeDeadlineSeconds"] = 100
	}
	if r.chance(5) {
		spec["terminationGracePeriodSeconds"] = pick(r, 0, 5)
	}
	if r.chance(6) {
		spec["tolerations"] = []any{object{"key": pick(r, "k", "l"), "operator": "Exists", "effect": "NoSchedule"}}
	}
	if own && r.chance(12) {
		spec["priorityClassName"] = pick(r, "system-node-critical", "missing")
	}
	if r.chance(8) {
		spec["volumes"] = []any{object{"name": "v", "emptyDir": object{}}, object{"name": "w", "configMap": object{"name": "a"}}}
	}
	return r.varied(spec, podParts)
}

func (r random) container(name string) object {
	c := object{"name": name, "image": pick(r, "i:1", "i", "i:latest")}
	if r.chance(15) {
		delete(c, "image")
	}
	requests := object{"cpu": pick(r, "100m", "250m", "1")}
	switch r.IntN(6) {
	case 0:
		c["resources"] = object{"requests": requests}
	case 1:
		c["resources"] = object{"limits": object{"cpu": "1", "memory": "64Mi"}}
	case 2:
		c["resources"] = object{"requests": requests, "limits": object{"cpu": "2"}}
	}
	if r.chance(4) {
		c["ports"] = []any{object{"containerPort": 80}, object{"containerPort": 81, "protocol": "UDP", "name": "p"}}
	}
	if r.chance(4) {
		c["env"] = []any{object{"name": "A", "value": pick(r, "1", "2")}}
	}
	if r.chance(8) {
		c["readinessProbe"] = object{"httpGet": object{"path": "/", "port": 80}}
	}
	return r.varied(c, containerParts)
}

// quota is what a ResourceQuota limits.
func (r random) quota() object {
	hard := object{}
	for _, limit := range []object{{"pods": "2"}, {"requests.cpu": "500m"}, {"limits.memory": "1Gi"}, {"count/configmaps": "2"}, {"configmaps": "1"}, {"persistentvolumeclaims": "1"},
		{"requests.storage": "2Gi"}, {"count/deployments.apps": "1"}, {"cpu": "1"}} {
		if r.chance(4) {
			maps.Copy(hard, limit)
		}
	}
	return hard
}

// limits are those of a LimitRange, some of them with a limit that is set where there is none.
func (r random) limits(limit string) []any {
	container := object{"type": "Container"}
	for _, of := range []struct {
		field   string
		amounts []string
	}{{"min", []string{"50m", "100m"}}, {"max", []string{"500m", "2"}}, {"default", []string{"300m", limit}}, {"defaultRequest", []string{"100m", "200m"}}} {
		if r.chance(2) {
			container[of.field] = object{"cpu": pick(r, of.amounts...)}
		}
	}
	if r.chance(3) {
		container["maxLimitRequestRatio"] = object{"cpu": pick(r, "2", "4")}
	}
	limits := []any{container}
	if r.chance(3) {
		limits = append(limits, object{"type": "Pod", "max": object{"cpu": "1"}})
	}
	return limits
}
