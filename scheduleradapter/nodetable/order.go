package nodetable

import "slices"

// zone is a region and zone with its nodes in the order of arrival.
type zone struct {
	name Symbol
	rows []Row
}

func (t *Table) setZone(row Row, was, is *Node) {
	t.order = t.order[:0]
	if i := t.zone(was.Zone); i >= 0 {
		z := &t.zones[i]
		if at := slices.Index(z.rows, row); at >= 0 {
			z.rows = slices.Delete(z.rows, at, at+1)
		}
		if len(z.rows) == 0 {
			t.zones = slices.Delete(t.zones, i, i+1)
		}
	}
	if is.Zone == (Symbol{}) {
		return
	}
	i := t.zone(is.Zone)
	if i < 0 {
		i = len(t.zones)
		t.zones = append(t.zones, zone{name: is.Zone})
	}
	t.zones[i].rows = append(t.zones[i].rows, row)
}

func (t *Table) zone(name Symbol) int {
	return slices.IndexFunc(t.zones, func(z zone) bool { return z.name == name })
}

// Order lists the nodes round robin over the zones, in the order of arrival, as
// kube-scheduler's node tree. It must not be changed.
func (t *Table) Order() []Row {
	if len(t.order) == t.Len() {
		return t.order
	}
	t.order = t.order[:0]
	for turn := 0; len(t.order) < t.Len(); turn++ {
		for i := range t.zones {
			if rows := t.zones[i].rows; turn < len(rows) {
				t.order = append(t.order, rows[turn])
			}
		}
	}
	return t.order
}
