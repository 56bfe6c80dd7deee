package suite_test

import "maps"

// subresource is a request to a part of an object, or a review where a kind has none.
func (r random) subresource(kind, name, path string) request {
	meta := object{"name": name, "namespace": "{ns}"}
	switch kind {
	case "pods":
		if r.chance(2) {
			return r.sends("POST", path+"/binding", "", object{"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": object{"kind": "Node", "name": pick(r, "n1", "n2")}})
		}
		if r.chance(3) {
			return r.ephemeral(name, path+"/ephemeralcontainers")
		}
		if r.chance(2) {
			return r.resize(kind, name, path+"/resize")
		}
		if r.chance(2) {
			return r.sends("PATCH", path+"/status"+r.options(), pick(r, "merge", "strategic"), object{"status": r.part(podStatusParts)})
		}
		return r.sends("PATCH", path+"/status"+r.options(), pick(r, "merge", "strategic"), object{"metadata": object{"labels": object{"seen": "x"}},
			"status": object{"phase": pick(r, "Running", "Succeeded", "Failed"), "message": pick(r, "m", "n")}, "spec": object{"nodeName": "other"}})
	case "nodes":
		return r.sends("PATCH", path+"/status"+r.options(), pick(r, "merge", "strategic"), object{"status": r.part(nodeStatusParts)})
	case "poddisruptionbudgets":
		return r.sends("PATCH", path+"/status"+r.options(), "merge", object{"status": object{"currentHealthy": r.IntN(4) - 1, "disruptionsAllowed": r.IntN(3)}})
	case "deployments":
		switch r.IntN(4) {
		case 0:
			return request{Request: "GET " + path + "/scale"}
		case 1:
			return r.sends("PUT", path+"/scale"+r.options(), "", object{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta, "spec": object{"replicas": r.IntN(4) - 1}})
		case 2:
			return r.sends("PATCH", path+"/scale"+r.options(), "merge", object{"spec": object{"replicas": r.IntN(4)}})
		}
		return r.sends("PATCH", path+"/status"+r.options(), "merge", object{"metadata": object{"labels": object{"seen": pick[any](r, "x", nil)}}, "status": pick(r, object{"replicas": r.IntN(3), "observedGeneration": 1}, object{"readyReplicas": r.IntN(4) - 1, "availableReplicas": r.IntN(3)})})
	}
	if parts := statuses[resources[kind]]; parts != nil && r.chance(2) {
		body := object{"metadata": object{"labels": object{"seen": "x"}, "annotations": object{"seen": "x"}}, "status": r.part(parts)}
		return r.sends("PATCH", path+"/status"+r.options(), pick(r, "merge", "strategic"), body)
	}
	user := object{"user": pick(r, "jane", ""), "groups": []string{"system:masters"}, "resourceAttributes": object{"verb": "get", "resource": "pods", "namespace": "{ns}"}}
	return r.sends("POST", pick(r, "/apis/authorization.k8s.io/v1/subjectaccessreviews", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		"/apis/authorization.k8s.io/v1/namespaces/{ns}/localsubjectaccessreviews"), "", object{"spec": user})
}

// ephemeral reads or changes the ephemeral containers of a pod.
func (r random) ephemeral(name, path string) request {
	c := r.varied(object{"name": pick(r, "e", "e", "f", "c"), "image": pick(r, "i:1", "i:2")}, containerParts)
	if r.chance(3) {
		c["targetContainerName"] = pick(r, "c", "d", "e")
	}
	body := object{"metadata": object{"name": name, "labels": object{"ephemeral": "x"}}, "spec": object{"nodeName": "other", "ephemeralContainers": []any{c}}}
	switch r.IntN(6) {
	case 0:
		return request{Request: "GET " + path}
	case 1:
		body["spec"].(object)["containers"] = []any{r.container("c")}
		return r.sends("PUT", path+r.options(), "", body)
	case 2:
		body["apiVersion"], body["kind"] = "v1", "Pod"
		return r.sends("PATCH", path+"?fieldManager="+pick(r, "one", "two")+pick(r, "", "&force=true"), "application/apply-patch+yaml", body)
	}
	return r.sends("PATCH", path+r.options(), pick(r, "merge", "strategic", "strategic"), body)
}

// resize reads a pod or changes its resources, in a pod as it was made last or alone.
func (r random) resize(kind, name, path string) request {
	if r.chance(6) {
		return request{Request: "GET " + path}
	}
	if r.chance(3) {
		body := r.again(kind, name)
		if spec, _ := body["spec"].(object); spec != nil {
			for _, list := range []string{"containers", "initContainers"} {
				containers, _ := spec[list].([]any)
				for _, c := range containers {
					maps.Copy(c.(object), r.part(resizeParts))
				}
			}
		}
		return r.sends("PUT", path+r.options(), "", r.identified(kind, name, body))
	}
	spec := object{"containers": []any{r.varied(object{"name": pick(r, "c", "c", "c", "d")}, resizeParts)}}
	if r.chance(4) {
		spec["initContainers"] = []any{r.varied(object{"name": "i"}, resizeParts)}
	}
	if r.chance(4) {
		spec["resources"] = object{"requests": object{"cpu": pick(r, "2", "3")}}
	}
	body := object{"metadata": object{"name": name, "labels": object{"resized": "x"}}, "spec": spec}
	if r.chance(4) {
		body["apiVersion"], body["kind"] = "v1", "Pod"
		return r.sends("PATCH", path+"?fieldManager="+pick(r, "one", "two")+pick(r, "", "&force=true"), "application/apply-patch+yaml", body)
	}
	return r.sends("PATCH", path+r.options(), pick(r, "merge", "strategic", "strategic", "strategic"), body)
}
