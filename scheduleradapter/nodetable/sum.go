package nodetable

// MaxAmount bounds the request of a pod and the sum of a node, in the unit of the digests,
// so that no sum of two wraps around. No node has as much.
const MaxAmount = 1 << 61

// carries are the sums of a column that are larger than MaxAmount, by row. They are exact
// again when pods leave.
type carries map[Row]carry

// carry is a sum of so many times MaxAmount, and a rest below it.
type carry struct{ times, rest int64 }

// add adds an amount to the sum of a row, which has MaxAmount while it is larger.
func (c *carries) add(sum *int64, row Row, n int64) {
	w, wide := (*c)[row]
	if !wide {
		if *sum += n; *sum < MaxAmount {
			return
		}
		w.rest, n = *sum, 0
	}
	if w.rest += n; w.rest >= MaxAmount {
		w.times, w.rest = w.times+1, w.rest-MaxAmount
	} else if w.rest < 0 {
		w.times, w.rest = w.times-1, w.rest+MaxAmount
	}
	if w.times == 0 {
		delete(*c, row)
		*sum = w.rest
		return
	}
	if *c == nil {
		*c = carries{}
	}
	(*c)[row] = w
	*sum = MaxAmount
}

// Sum of requests: number of pods, cpu in millicores, memory and ephemeral storage
// in bytes.
type Sum struct{ Pods, CPU, Memory, Ephemeral int64 }

func (r *Requests) Sum() Sum { return Sum{1, r.CPU, r.Memory, r.Ephemeral} }

// Plus is the sum, of at most MaxAmount each.
func (s Sum) Plus(o Sum) Sum {
	return Sum{s.Pods + o.Pods, min(s.CPU+o.CPU, MaxAmount), min(s.Memory+o.Memory, MaxAmount), min(s.Ephemeral+o.Ephemeral, MaxAmount)}
}

func (s Sum) Minus(o Sum) Sum {
	return Sum{s.Pods - o.Pods, s.CPU - o.CPU, s.Memory - o.Memory, s.Ephemeral - o.Ephemeral}
}

// Exact reports whether no sum of a row is larger than MaxAmount.
func (t *Table) Exact(row Row) bool {
	return max(t.CPU.Requested[row], t.Memory.Requested[row], t.Ephemeral.Requested[row]) < MaxAmount
}

// Free are the free amounts of a row; they may be negative.
func (t *Table) Free(row Row) Sum {
	return Sum{t.Pods.Free(row), t.CPU.Free(row), t.Memory.Free(row), t.Ephemeral.Free(row)}
}
