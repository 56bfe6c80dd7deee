package nodetable

import "fmt"

// MaxShare bounds the distinct extended resources and inter-pod terms that the placed pods
// of a namespace bring: each takes memory. What nodes offer, and what a pod of another
// namespace has brought before, does not count.
const MaxShare = 10_000

func (t *Table) share(namespace Symbol, n int) {
	if namespace == (Symbol{}) {
		return
	}
	if t.shares[namespace] += n; t.shares[namespace] == 0 {
		delete(t.shares, namespace)
	}
}

// Refuses is why no node may be selected for a pod: it exceeds a bound of a pod, or its
// namespace would exceed MaxShare with it. Empty: it does not.
func (t *Table) Refuses(p *Pod) string {
	share := t.shares[p.Namespace]
	if p.Refused != "" || share+p.shareable() <= MaxShare {
		return p.Refused
	}
	further := 0
	for _, a := range p.Requests.Extended {
		if t.extended[a.Name] == nil {
			further++
		}
	}
	for kind := range termKinds {
		for _, term := range p.Terms(kind) {
			if t.terms[kind].byKey[term.Key] == nil {
				further++
			}
		}
	}
	if further == 0 || share+further <= MaxShare {
		return ""
	}
	return fmt.Sprintf("pods of namespace %s have %d distinct extended resources and inter-pod affinity terms, the pod has %d further ones, evictd-scheduler accepts %d", p.Namespace.Value(), share, further, MaxShare)
}

func (p *PodTemplate) shareable() (n int) {
	n = len(p.Requests.Extended)
	for kind := range termKinds {
		n += len(p.Terms(kind))
	}
	return n
}
