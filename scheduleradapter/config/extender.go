package config

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

const defaultExtenderTimeout = 5 * time.Second

// Extender is an HTTP extender. A verb is appended to URLPrefix; empty: not
// supported.
type Extender struct {
	// Path is that of the extender in the file.
	Path                                              string
	URLPrefix                                         string
	FilterVerb, PreemptVerb, PrioritizeVerb, BindVerb string
	// Weight of the scores of PrioritizeVerb.
	Weight int64
	// TLS is used if URLPrefix is https. Without a CA the system's certificates are used.
	TLS configv1.ExtenderTLSConfig
	// HTTPTimeout bounds each request.
	HTTPTimeout time.Duration
	// NodeCacheCapable sends node names instead of nodes.
	NodeCacheCapable bool
	// ManagedResources limit the extender to pods that request one of them.
	// NodeResourcesFit does not check IgnoredResources.
	ManagedResources, IgnoredResources []string
	// Ignorable: an error does not fail the attempt.
	Ignorable bool
}

func (c *compiler) extenders(path *field.Path, described []configv1.Extender) (extenders []Extender) {
	binders := 0
	seen := sets.New[string]()
	for i := range described {
		e, at := &described[i], path.Index(i)
		c.check(e.PrioritizeVerb == "" || e.Weight > 0, at.Child("weight"), e.Weight, "must have a positive weight applied to it")
		if e.BindVerb != "" {
			binders++
		}
		if e.EnableHTTPS && e.TLSConfig == nil {
			c.warn(at.Child("enableHTTPS"), "the server is verified by the system's certificates: kube-scheduler verifies it only by a tlsConfig with a CA")
		}
		extender := Extender{
			Path: at.String(), URLPrefix: e.URLPrefix,
			FilterVerb: e.FilterVerb, PreemptVerb: e.PreemptVerb, PrioritizeVerb: e.PrioritizeVerb, BindVerb: e.BindVerb,
			Weight:           e.Weight,
			HTTPTimeout:      cmp.Or(e.HTTPTimeout.Duration, defaultExtenderTimeout),
			NodeCacheCapable: e.NodeCacheCapable,
			Ignorable:        e.Ignorable,
		}
		if e.TLSConfig != nil {
			extender.TLS = *e.TLSConfig
		}
		for j, resource := range e.ManagedResources {
			name := at.Child("managedResources").Index(j).Child("name")
			c.checkExtendedResource(name, resource.Name)
			c.check(!seen.Has(resource.Name), name, resource.Name, "duplicate extender managed resource name")
			seen.Insert(resource.Name)
			extender.ManagedResources = append(extender.ManagedResources, resource.Name)
			if resource.IgnoredByScheduler {
				extender.IgnoredResources = append(extender.IgnoredResources, resource.Name)
			}
		}
		extenders = append(extenders, extender)
	}
	c.check(binders <= 1, path, binders, "only one extender can implement bind")
	slices.SortStableFunc(extenders, func(a, b Extender) int { return rank(a) - rank(b) })
	return extenders
}

// rank is 1 for ignorable extenders, which are last.
func rank(e Extender) int {
	if e.Ignorable {
		return 1
	}
	return 0
}

// checkExtendedResource checks that a name is a qualified extended resource outside
// kubernetes.io that a quota can have.
func (c *compiler) checkExtendedResource(path *field.Path, name string) {
	if faults := validation.IsQualifiedName(name); len(faults) > 0 {
		for _, why := range faults {
			c.invalid(path, name, why)
		}
		return
	}
	native := !strings.Contains(name, "/") || strings.Contains(name, v1.ResourceDefaultNamespacePrefix)
	quota := v1.DefaultResourceRequestsPrefix + name
	c.check(!native && !strings.HasPrefix(name, v1.DefaultResourceRequestsPrefix) && len(validation.IsQualifiedName(quota)) == 0,
		path, name, "is an invalid extended resource name")
}
