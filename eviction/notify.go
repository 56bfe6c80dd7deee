package eviction

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	// NotifyAnnotation of a pod asks for warnings: see Notify.
	NotifyAnnotation = "evictd.io/notify"
	// NotifyContainerAnnotation names the only container of the pod that is warned.
	NotifyContainerAnnotation = "evictd.io/notify-container"
)

// Notify says how the containers of a pod are warned. The zero Notify asks for no warnings.
type Notify struct {
	// Warning is the number of the signal of a warning, and Over of its end; zero for none.
	Warning, Over int
	// File is a path in the container that says whether it is warned; empty with signals.
	File string
	// Container is the name of the only container that is warned; empty for all.
	Container string
}

// Asks says whether the pod asks for warnings.
func (n *Notify) Asks() bool { return n.Warning != 0 || n.File != "" }

// notices are the signals that a pod may ask for, with their numbers on x86 and ARM. The kernel
// sends the others for faults, or they end or stop a process that catches them, too.
var notices = map[string]int{
	"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGUSR1": 10, "SIGUSR2": 12, "SIGALRM": 14, "SIGCONT": 18, "SIGTSTP": 20, "SIGTTIN": 21, "SIGTTOU": 22,
	"SIGURG": 23, "SIGXCPU": 24, "SIGXFSZ": 25, "SIGVTALRM": 26, "SIGPROF": 27, "SIGWINCH": 28, "SIGIO": 29, "SIGPWR": 30,
}

// firstRealTime is the number of SIGRTMIN in glibc, and lastRealTime of SIGRTMAX.
const firstRealTime, lastRealTime = 34, 64

// parseNotice is the number of a signal by its name: SIGUSR1, or SIGRTMIN+3.
func parseNotice(name string) (number int, ok bool) {
	if after, is := strings.CutPrefix(name, "SIGRTMIN"); is {
		n, err := strconv.ParseUint(strings.TrimPrefix(after, "+"), 10, 8)
		if after == "" {
			return firstRealTime, true
		}
		return firstRealTime + int(n), err == nil && after[0] == '+' && n <= lastRealTime-firstRealTime
	}
	number, ok = notices[name]
	return number, ok
}

// ParseNotify reads NotifyAnnotation and NotifyContainerAnnotation of a pod with these containers:
// "SIGUSR1" for warnings, "SIGUSR1,SIGUSR2" for warnings and their ends, or "file:/path".
func ParseNotify(annotations map[string]string, containers []string) (Notify, error) {
	text, asks := annotations[NotifyAnnotation]
	if !asks {
		return Notify{}, nil
	}
	n := Notify{Container: annotations[NotifyContainerAnnotation]}
	if n.Container != "" && !slices.Contains(containers, n.Container) {
		return Notify{}, fmt.Errorf("annotation %s: the pod has no container %q", NotifyContainerAnnotation, n.Container)
	}
	fault := func(expected string) (Notify, error) {
		return Notify{}, fmt.Errorf("annotation %s: %q: expected %s", NotifyAnnotation, text, expected)
	}
	if file, is := strings.CutPrefix(text, "file:"); is {
		if !path.IsAbs(file) || path.Clean(file) != file || file == "/" || strings.ContainsFunc(file, func(r rune) bool { return r < ' ' }) {
			return fault("the absolute path of a file, without . and ..")
		}
		n.File = file
		return n, nil
	}
	warning, over, both := strings.Cut(text, ",")
	var ok bool
	if n.Warning, ok = parseNotice(warning); !ok {
		return fault("file:/path, or a signal such as SIGUSR1, other than SIGKILL, SIGSTOP, SIGTERM and those of faults")
	}
	if !both {
		return n, nil
	}
	if n.Over, ok = parseNotice(over); !ok || n.Over == n.Warning {
		return fault("another signal for the end of a warning")
	}
	return n, nil
}
