package queue

// heap is a binary heap whose members know where they are, so that any of them
// can be removed. less is a total order: what comes out does not depend on the
// order in which it went in. An entry is in one heap of each slot at most.
type heap struct {
	items []*Entry
	less  func(a, b *Entry) bool
	slot  int
}

// first is the least entry, nil where there is none.
func (h *heap) first() *Entry {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

func (h *heap) push(e *Entry) {
	h.items = append(h.items, e)
	h.up(len(h.items)-1, e)
}

// remove takes a member out.
func (h *heap) remove(e *Entry) {
	i, last := e.at[h.slot], len(h.items)-1
	e.at[h.slot] = -1
	moved := h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	if i < last {
		h.settle(i, moved)
	}
}

// fix restores the order after a member changed.
func (h *heap) fix(e *Entry) { h.settle(e.at[h.slot], e) }

// settle puts e, which belongs near i, where it belongs.
func (h *heap) settle(i int, e *Entry) {
	if i > 0 && h.less(e, h.items[(i-1)/2]) {
		h.up(i, e)
		return
	}
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.less(h.items[right], h.items[child]) {
			child = right
		}
		if !h.less(h.items[child], e) {
			break
		}
		h.set(i, h.items[child])
		i = child
	}
	h.set(i, e)
}

func (h *heap) up(i int, e *Entry) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(e, h.items[parent]) {
			break
		}
		h.set(i, h.items[parent])
		i = parent
	}
	h.set(i, e)
}

func (h *heap) set(i int, e *Entry) {
	h.items[i] = e
	e.at[h.slot] = i
}
