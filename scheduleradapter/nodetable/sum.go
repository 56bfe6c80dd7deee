package nodetable

// Sum of requests: number of pods, cpu in millicores, memory and ephemeral storage
// in bytes.
type Sum struct{ Pods, CPU, Memory, Ephemeral int64 }

func (r *Requests) Sum() Sum { return Sum{1, r.CPU, r.Memory, r.Ephemeral} }

func (s Sum) Plus(o Sum) Sum {
	return Sum{s.Pods + o.Pods, s.CPU + o.CPU, s.Memory + o.Memory, s.Ephemeral + o.Ephemeral}
}

func (s Sum) Minus(o Sum) Sum {
	return Sum{s.Pods - o.Pods, s.CPU - o.CPU, s.Memory - o.Memory, s.Ephemeral - o.Ephemeral}
}

// Free are the free amounts of a row; they may be negative.
func (t *Table) Free(row Row) Sum {
	return Sum{t.Pods.Free(row), t.CPU.Free(row), t.Memory.Free(row), t.Ephemeral.Free(row)}
}
