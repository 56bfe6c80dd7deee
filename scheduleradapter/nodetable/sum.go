package nodetable

// Sum is what pods request together of what every node has: how many they are,
// cpu in millicores, memory and ephemeral storage in bytes.
type Sum struct{ Pods, CPU, Memory, Ephemeral int64 }

// Sum of one pod.
func (r *Requests) Sum() Sum { return Sum{1, r.CPU, r.Memory, r.Ephemeral} }

// Plus adds another sum.
func (s Sum) Plus(o Sum) Sum {
	return Sum{s.Pods + o.Pods, s.CPU + o.CPU, s.Memory + o.Memory, s.Ephemeral + o.Ephemeral}
}

// Minus takes another sum off.
func (s Sum) Minus(o Sum) Sum {
	return Sum{s.Pods - o.Pods, s.CPU - o.CPU, s.Memory - o.Memory, s.Ephemeral - o.Ephemeral}
}
