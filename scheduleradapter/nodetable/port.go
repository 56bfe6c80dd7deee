package nodetable

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

type portNumber struct {
	protocol v1.Protocol
	number   int32
}

// portUse is a used host port on one address.
type portUse struct {
	ip  Symbol
	use Tally
}

func (t *Table) usePort(p Port, row Row, n int32) {
	number := portNumber{p.Protocol, p.Number}
	uses := t.ports[number]
	i := slices.IndexFunc(uses, func(u portUse) bool { return u.ip == p.IP })
	if i < 0 {
		i = len(uses)
		uses = append(uses, portUse{ip: p.IP})
	}
	uses[i].use.add(row, n)
	if uses[i].use.total == 0 {
		uses = slices.Delete(uses, i, i+1)
	}
	if t.ports[number] = uses; len(uses) == 0 {
		delete(t.ports, number)
	}
}

// PortConflicts stores the rows on which host ports conflict: the same port on the
// same address or on all addresses.
func (t *Table) PortConflicts(ports []Port, into Bits) {
	every := Intern(everyIP)
	for _, p := range ports {
		for _, u := range t.ports[portNumber{p.Protocol, p.Number}] {
			if u.ip != p.IP && u.ip != every && p.IP != every {
				continue
			}
			for c := range u.use.Rows() {
				into.Set(c.Row)
			}
		}
	}
}

// Overlap reports whether host ports conflict.
func Overlap(a, b []Port) bool {
	every := Intern(everyIP)
	return slices.ContainsFunc(a, func(p Port) bool {
		return slices.ContainsFunc(b, func(q Port) bool {
			return p.Number == q.Number && p.Protocol == q.Protocol && (p.IP == q.IP || p.IP == every || q.IP == every)
		})
	})
}
