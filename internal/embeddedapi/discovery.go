package embeddedapi

import (
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// discovery lists groups and resources; nil where the path is another.
func (r *request) discovery(path string) runtime.Object {
	a, parts := r.api, strings.Split(path[1:], "/")
	switch {
	case r.accepted.aggregated:
		return a.aggregate(path == "/api")
	case path == "/api":
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: r.Host}}}
	case path == "/apis":
		return a.groups()
	case parts[0] == "api" && len(parts) == 2:
		return a.resourceList(schema.GroupVersion{Version: parts[1]})
	case parts[0] == "apis" && len(parts) == 3:
		return a.resourceList(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	case parts[0] == "apis" && len(parts) == 2:
		for _, group := range a.groups().Groups {
			if group.Name == parts[1] {
				group.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}
				return &group
			}
		}
	}
	return nil
}

// groupVersions are all group versions, the core group first.
func (a *API) groupVersions() (found []schema.GroupVersion) {
	for _, k := range slices.Concat(a.kinds, a.reviews) {
		if !slices.Contains(found, k.GroupVersion()) {
			found = append(found, k.GroupVersion())
		}
	}
	return found
}

func (a *API) groups() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
	for _, gv := range a.groupVersions() {
		if gv.Group == "" {
			continue
		}
		version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
	}
	return list
}

// resourceList is a nil object where the group and version do not exist.
func (a *API) resourceList(gv schema.GroupVersion) runtime.Object {
	if !slices.Contains(a.groupVersions(), gv) {
		return nil
	}
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv.String()}
	for _, k := range slices.Concat(a.kinds, a.reviews) {
		if k.GroupVersion() != gv {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.resource, SingularName: k.singular, Namespaced: k.namespaced, Kind: k.Kind, ShortNames: k.short,
			Categories: k.categories(), Verbs: k.verbs(),
		})
		sub := func(name string, gvk schema.GroupVersionKind, verbs ...string) {
			if k.hasSub(name) {
				list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.resource + "/" + name, Namespaced: k.namespaced,
					Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Verbs: verbs})
			}
		}
		sub("status", schema.GroupVersionKind{Kind: k.Kind}, "get", "patch", "update")
		sub("scale", autoscalingv1.SchemeGroupVersion.WithKind("Scale"), "get", "patch", "update")
		sub("finalize", schema.GroupVersionKind{Kind: k.Kind}, "update")
		sub("binding", schema.GroupVersionKind{Kind: "Binding"}, "create")
		sub(ephemeral, schema.GroupVersionKind{Kind: k.Kind}, "get", "patch", "update")
		sub(resize, schema.GroupVersionKind{Kind: k.Kind}, "get", "patch", "update")
		sub("eviction", policyv1.SchemeGroupVersion.WithKind("Eviction"), "create")
	}
	return list
}

// inAll are the kinds that "kubectl get all" means.
var inAll = []string{"Pod", "ReplicationController", "Service", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "HorizontalPodAutoscaler", "CronJob", "Job"}

func (k *kind) verbs() metav1.Verbs {
	if k.review != nil {
		return metav1.Verbs{"create"}
	}
	return metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

func (k *kind) categories() []string {
	if slices.Contains(inAll, k.Kind) {
		return []string{"all"}
	}
	return nil
}

// aggregated is the document with which a client asks for all groups and their resources at once.
var aggregated = apidiscoveryv2.SchemeGroupVersion.WithKind("APIGroupDiscoveryList")

// aggregate is that document, of the core group or of the others.
func (a *API) aggregate(core bool) runtime.Object {
	list := &apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{}}
	list.SetGroupVersionKind(aggregated)
	for _, gv := range a.groupVersions() {
		if (gv.Group == "") != core {
			continue
		}
		version := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		for _, resource := range a.resourceList(gv).(*metav1.APIResourceList).APIResources {
			version.Resources = addResource(version.Resources, resource)
		}
		list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []apidiscoveryv2.APIVersionDiscovery{version}})
	}
	return list
}

// addResource adds a resource, or a subresource to the last resource.
func addResource(to []apidiscoveryv2.APIResourceDiscovery, r metav1.APIResource) []apidiscoveryv2.APIResourceDiscovery {
	kind := &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	if _, sub, isSub := strings.Cut(r.Name, "/"); isSub {
		parent := &to[len(to)-1]
		parent.Subresources = append(parent.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind, Verbs: r.Verbs})
		return to
	}
	scope := apidiscoveryv2.ScopeCluster
	if r.Namespaced {
		scope = apidiscoveryv2.ScopeNamespace
	}
	return append(to, apidiscoveryv2.APIResourceDiscovery{Resource: r.Name, ResponseKind: kind, Scope: scope, SingularResource: r.SingularName,
		Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories})
}
