package watch

import (
	"strconv"
	"strings"

	"github.com/evictd/evictd/stats"
)

// text is the message of a line of /dev/kmsg, if the kernel wrote it: messages of
// processes have another facility. more says that it continues the previous line
// (Documentation/ABI/testing/dev-kmsg).
func text(line string) (said string, more, kernel bool) {
	head, said, found := strings.Cut(line, ";")
	if !found || strings.HasPrefix(line, " ") { // of a record's dictionary
		return "", false, false
	}
	fields := strings.SplitN(head, ",", 5)
	if len(fields) < 4 {
		return "", false, false
	}
	priority, err := strconv.ParseUint(fields[0], 10, 32)
	const facilities = 8 // lower priorities are of the kernel's facility
	return said, strings.Contains(fields[3], "c"), err == nil && priority < facilities
}

// summary is the kernel's message before the kill (dump_oom_summary, Linux 5.0). It is
// rate-limited to ten in 5 s.
type summary struct {
	pid int
	// cgroup is the victim's, and limit the group that reached its limit: paths
	// from the root of the hierarchy; limit is "" where the machine is out of memory.
	cgroup, limit string
}

// parseSummary reads
//
//	oom-kill:constraint=C,nodemask=M,cpuset=NAME,mems_allowed=L,oom_memcg=/LIMIT,task_memcg=/CGROUP,task=NAME,pid=N,uid=N
//
// with global_oom in place of oom_memcg where the machine is out of memory. A pod may
// choose the name of its process, and those of groups below its own, the last part of
// which is also the name of the cpuset. So the fields are found from both ends: the
// name of the cpuset has no slash, paths begin with a part that the pod cannot choose,
// and the group of the limit contains the victim.
func parseSummary(said string) (s summary, ok bool) {
	const global, limited, victim = ",global_oom,task_memcg=", ",oom_memcg=", ",task_memcg="
	said, ok = strings.CutPrefix(said, "oom-kill:")
	if !ok {
		return summary{}, false
	}
	said, _, _ = cutLast(said, ",uid=")
	said, pid, _ := cutLast(said, ",pid=")
	var err error
	if s.pid, err = strconv.Atoi(pid); err != nil || s.pid <= 0 {
		return summary{}, false
	}
	if said, _, ok = cutLast(said, ",task="); !ok {
		return summary{}, false
	}
	ofMachine, ofGroup := strings.Index(said, global+"/"), strings.Index(said, limited+"/")
	switch {
	case ofMachine >= 0 && (ofGroup < 0 || ofMachine < ofGroup):
		s.cgroup = said[ofMachine+len(global):]
	case ofGroup >= 0:
		if s.limit, s.cgroup, ok = strings.Cut(said[ofGroup+len(limited):], victim); !ok {
			return summary{}, false
		}
	default:
		return summary{}, false
	}
	s.limit, s.cgroup = unescape(s.limit), unescape(s.cgroup)
	if s.limit != "" && !contains(s.limit, s.cgroup) {
		s.cgroup = s.limit
	}
	return s, true
}

// killed is the kernel's message of a kill (__oom_kill_process).
type killed struct {
	pid     int
	process string // its name, with what does not print as \xNN
	memory  stats.Amount
	machine bool // the machine was out of memory
}

// parseKilled reads
//
//	Memory cgroup out of memory: Killed process N (NAME) total-vm:NkB, anon-rss:NkB, file-rss:NkB, shmem-rss:NkB, ...
//
// or with "Out of memory" for the machine. The memory is the sum of the three rss
// values.
func parseKilled(said string) (k killed, ok bool) {
	reason, rest, ok := strings.Cut(said, ": Killed process ")
	pid, rest, named := strings.Cut(rest, " (")
	process, figures, whole := cutLast(rest, ") total-vm:")
	n, err := strconv.Atoi(pid)
	if !ok || !named || !whole || err != nil || n <= 0 {
		return killed{}, false
	}
	k = killed{pid: n, process: process, machine: strings.HasPrefix(reason, "Out of memory")}
	for _, field := range strings.FieldsFunc(figures, func(r rune) bool { return r == ' ' || r == ',' }) {
		kind, amount, _ := strings.Cut(field, ":")
		kib, inKib := strings.CutSuffix(amount, "kB")
		if n, err := strconv.ParseUint(kib, 10, 40); err == nil && inKib && strings.HasSuffix(kind, "-rss") {
			k.memory = stats.Known(k.memory.Or(0) + int64(n)<<10)
		}
	}
	return k, true
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// unescape decodes the \xNN of /dev/kmsg, for bytes that do not print and the
// backslash.
func unescape(s string) string {
	first, rest, found := strings.Cut(s, `\x`)
	if !found {
		return s
	}
	var b strings.Builder
	b.WriteString(first)
	for part := range strings.SplitSeq(rest, `\x`) {
		code, err := strconv.ParseUint(part[:min(2, len(part))], 16, 8)
		if err != nil || len(part) < 2 { // a truncated line
			break
		}
		b.WriteByte(byte(code))
		b.WriteString(part[2:])
	}
	return b.String()
}

// contains says whether a group is the other or is below it.
func contains(above, group string) bool {
	return above == "/" || group == above || strings.HasPrefix(group, above+"/")
}
