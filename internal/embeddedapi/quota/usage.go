// Package quota computes what objects use of ResourceQuotas, and what LimitRanges allow, by the
// rules of kube-apiserver's admission plugins. It stores nothing.
package quota

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// aliases are the older names of the numbers of objects, by resource.
var aliases = map[string]v1.ResourceName{
	"configmaps": v1.ResourceConfigMaps, "resourcequotas": v1.ResourceQuotas,
	"replicationcontrollers": v1.ResourceReplicationControllers, "secrets": v1.ResourceSecrets,
}

// Usage is what an object of a resource, such as pods or deployments.apps, uses. A pod that has
// ended, or whose grace period is over, uses no more than its place in the storage.
func Usage(of string, object any, now time.Time) v1.ResourceList {
	used := v1.ResourceList{v1.ResourceName("count/" + of): one()}
	if alias := aliases[of]; alias != "" {
		used[alias] = one()
	}
	switch o := object.(type) {
	case *v1.Pod:
		if lives(o, now) {
			options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
			addCompute(used, resourcehelper.PodRequests(o, options), resourcehelper.PodLimits(o, options))
		}
	case *v1.Service:
		addService(used, o)
	case *v1.PersistentVolumeClaim:
		addClaim(used, o)
	}
	return used
}

func one() resource.Quantity { return *resource.NewQuantity(1, resource.DecimalSI) }

func lives(pod *v1.Pod, now time.Time) bool {
	if pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {
		return false
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return true
	}
	return !now.After(pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second))
}

// addCompute adds what a pod or a container uses.
func addCompute(used, requests, limits v1.ResourceList) {
	used[v1.ResourcePods] = one()
	for name, amount := range requests {
		switch {
		case isNative(name):
			used[name], used["requests."+name] = amount, amount
		case strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix):
			used[name], used["requests."+name] = amount, amount
		case isExtended(name):
			used["requests."+name] = amount
		}
	}
	for name, amount := range limits {
		if isNative(name) {
			used["limits."+name] = amount
		}
	}
}

func isNative(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage
}

// isExtended says that a resource has a domain other than Kubernetes' own.
func isExtended(name v1.ResourceName) bool {
	domain, _, qualified := strings.Cut(string(name), "/")
	return qualified && !strings.HasSuffix(domain, "kubernetes.io") && !strings.HasPrefix(domain, "requests.")
}

func addService(used v1.ResourceList, s *v1.Service) {
	used[v1.ResourceServices] = one()
	ports, balancers := int64(0), int64(0)
	switch s.Spec.Type {
	case v1.ServiceTypeNodePort:
		ports = int64(len(s.Spec.Ports))
	case v1.ServiceTypeLoadBalancer:
		balancers = 1
		for _, port := range s.Spec.Ports {
			if s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts || port.NodePort != 0 {
				ports++
			}
		}
	}
	used[v1.ResourceServicesNodePorts] = *resource.NewQuantity(ports, resource.DecimalSI)
	used[v1.ResourceServicesLoadBalancers] = *resource.NewQuantity(balancers, resource.DecimalSI)
}

func addClaim(used v1.ResourceList, c *v1.PersistentVolumeClaim) {
	used[v1.ResourcePersistentVolumeClaims] = one()
	class, named := c.Annotations[v1.BetaStorageClassAnnotation]
	if !named {
		class = ptr.Deref(c.Spec.StorageClassName, "")
	}
	within := v1.ResourceName(class + ".storageclass.storage.k8s.io/")
	if class != "" {
		used[within+v1.ResourcePersistentVolumeClaims] = one()
	}
	amount, requested := c.Spec.Resources.Requests[v1.ResourceStorage]
	if allocated, known := c.Status.AllocatedResources[v1.ResourceStorage]; known && allocated.Cmp(amount) > 0 {
		amount, requested = allocated, true
	}
	if !requested {
		return
	}
	used[v1.ResourceRequestsStorage] = amount
	if class != "" {
		used[within+v1.ResourceRequestsStorage] = amount
	}
}
