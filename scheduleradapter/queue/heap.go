package queue

// heap is a binary heap that stores the index of each entry, so that any entry can
// be removed. less is a total order. An entry is in at most one heap of each slot.
type heap struct {
	items []*Entry
	less  func(a, b *Entry) bool
	slot  int
}

// first is the least entry; nil: the heap is empty.
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

// fix restores the order after an entry changed.
func (h *heap) fix(e *Entry) { h.settle(e.at[h.slot], e) }

// settle moves e from index i to its place.
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
