package metric

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Table describes the set for docs/metrics.md, but for what AddProcess added.
func (s *Set) Table() string {
	all := slices.Clone(s.families)
	slices.SortFunc(all, func(a, b family) int { return cmp.Compare(a.name, b.name) })
	var table strings.Builder
	table.WriteString("| metric | type | labels | unit | what it says | name of | stability |\n|---|---|---|---|---|---|---|\n")
	for _, f := range all {
		labels := "`" + strings.Join(f.labels, "`, `") + "`"
		if len(f.labels) == 0 {
			labels = ""
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s | %s | %s |\n", f.name, f.kind, labels, f.unit(), strings.ReplaceAll(f.help, "<", `\<`), f.owner, f.stability)
	}
	return table.String()
}

// unit is that of the name, by the rules of Prometheus; a count has none.
func (f family) unit() string {
	name := strings.TrimSuffix(f.name, "_total")
	for _, u := range []struct{ suffix, unit string }{
		{"_bytes_per_second", "bytes/s"}, {"_timestamp_seconds", "Unix time, s"}, {"_start_time_seconds", "Unix time, s"},
		{"_seconds", "s"}, {"_bytes", "bytes"}, {"_percent", "%"}, {"_health", "%"},
	} {
		if strings.HasSuffix(name, u.suffix) {
			return u.unit
		}
	}
	return ""
}
