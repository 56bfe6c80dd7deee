package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// machine says where the figures come from.
func machine() string {
	return fmt.Sprintf("%d cores of %s, %s of memory, Linux %s, %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name"),
		field("/proc/meminfo", "MemTotal"), field("/proc/sys/kernel/osrelease", ""), runtime.Version())
}

// field is the rest of the first line of a file that begins with a key.
func field(file, key string) string {
	text, _ := os.ReadFile(file)
	for l := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(l, key); ok {
			return strings.Trim(value, " \t:\n")
		}
	}
	return "unknown"
}

// table prints rows as they come.
type table struct{ w *tabwriter.Writer }

func newTable() *table {
	t := &table{tabwriter.NewWriter(os.Stdout, 14, 0, 2, ' ', tabwriter.AlignRight)}
	fmt.Fprintln(t.w, "program\tcgroup\tnode, MiB\tGiB/s\tload\tof the machine\tn\tby kernel\tto signal, ms: p50\tp99\tmax\tto stop, ms: p50\tp99\tmax\tovershoot, MiB: p50\tp99\tmax\t")
	t.w.Flush()
	return t
}

func (t *table) row(b *bench, program string, s situation, results []result) {
	var signalled, stopped, overshoot []float64
	kernel := 0
	for _, r := range results {
		overshoot = append(overshoot, float64(r.overshoot)/mib)
		if r.byKernel {
			kernel++
			continue
		}
		stopped = append(stopped, float64(r.stopped)/1e6)
		if r.signalled != 0 {
			signalled = append(signalled, float64(r.signalled)/1e6)
		}
	}
	fill := "most"
	if s.rate > 0 {
		fill = fmt.Sprint(s.rate)
	}
	average, _, _ := strings.Cut(field("/proc/loadavg", ""), " ")
	fmt.Fprintf(t.w, "%s\t%v\t%d\t%s\t%d\t%s\t%d\t%d\t%s%s%s\n", program, b.cgroups.Version(), b.memory, fill, s.load, average, len(results), kernel, quantiles(signalled), quantiles(stopped), quantiles(overshoot))
	t.w.Flush()
}

// quantiles are the cells p50, p99 and max, by the nearest rank.
func quantiles(values []float64) string {
	slices.Sort(values)
	var cells strings.Builder
	for _, q := range []float64{0.5, 0.99, 1} {
		cell := "-"
		if n := len(values); n > 0 {
			cell = fmt.Sprintf("%.2f", values[min(n-1, int(q*float64(n)))])
		}
		cells.WriteString(cell + "\t")
	}
	return cells.String()
}
