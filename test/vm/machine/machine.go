// Package machine is what tests need that run in a virtual machine of test/vm,
// which they have to themselves: systemd, its journal, and the installed evictd.
package machine

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Own says that the whole machine may be put under pressure and has the package
// installed.
var Own = os.Getenv("EVICTD_MACHINE") != ""

// The installed service, where it serves and what it keeps.
const (
	Service       = "evictd.service"
	StatusSocket  = "/run/evictd/status.sock"
	JournalFile   = "/var/lib/evictd/journal"
	configuration = "/etc/evictd/evictd.yaml"

	flightRecorder = "/var/lib/evictd/flight/*" // its segments
)

// Need skips a test that is elsewhere.
func Need(t testing.TB) {
	t.Helper()
	if !Own {
		t.Skip("skipped: it takes a machine of its own: make test-all PARTS=vm")
	}
}

// defaults make the service quick to test, where a test does not set them itself.
var defaults = [...][2]string{
	{"mode", "native"}, {"nodeName", "machine"}, {"criEndpoint", "none"},
	{"housekeepingInterval", "1s"}, {"evictionPressureTransitionPeriod", "5s"},
}

// Configure writes the service's configuration, lines of YAML.
func Configure(t testing.TB, settings string) {
	t.Helper()
	text := "apiVersion: evictd.io/v1alpha1\nkind: EvictdConfiguration\n" + settings + "\n"
	for _, d := range defaults {
		if !strings.Contains(text, "\n"+d[0]+":") {
			text += d[0] + ": " + d[1] + "\n"
		}
	}
	if err := os.WriteFile(configuration, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Restart starts the service with an empty state. When the test ends, the machine must
// have refused it nothing, however often it was started meanwhile.
func Restart(t testing.TB) {
	t.Helper()
	Systemctl(t, "stop", Service)
	_ = os.Remove(JournalFile)
	begun := time.Now()
	_, cursor, _ := strings.Cut(Journal(t, "--lines=0", "--show-cursor"), "-- cursor: ")
	if out, err := exec.Command("systemctl", "start", Service).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s%s", err, out, Journal(t, "--unit="+Service, "--lines=10"))
	}
	t.Cleanup(func() {
		text := Journal(t, "--unit="+Service, "--after-cursor="+strings.TrimSpace(cursor))
		for line := range strings.Lines(text) {
			for _, refusal := range []string{"operation not permitted", "function not implemented", "read-only file system", "permission denied", "is not available"} {
				if strings.Contains(line, refusal) {
					t.Errorf("the machine refuses something: %s", line)
				}
			}
		}
		if t.Failed() {
			t.Logf("the journal:\n%s\nthe flight recorder:\n%s", text, recorded(begun))
		}
	})
}

// recorded is what the flight recorder has of the time since then.
func recorded(since time.Time) (lines string) {
	segments, _ := filepath.Glob(flightRecorder)
	for _, file := range segments {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			var record struct{ At time.Time }
			fields := strings.SplitN(line, " ", 3) // checksum, number of the segment, record
			if len(fields) == 3 && json.Unmarshal([]byte(fields[2]), &record) == nil && record.At.After(since) {
				lines += fields[2]
			}
		}
	}
	return lines
}

// Systemctl returns what it prints.
func Systemctl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// Show is a property of the service's unit.
func Show(t testing.TB, property string) string {
	t.Helper()
	return Systemctl(t, "show", "--property="+property, "--value", Service)
}

// Journal is what the journal holds of the lines that match.
func Journal(t testing.TB, match ...string) string {
	t.Helper()
	out, err := exec.Command("journalctl", append([]string{"--no-pager", "--quiet", "--output=short-precise"}, match...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("journalctl: %v: %s", err, out)
	}
	return string(out)
}

// Signal sends one to the service's main process.
func Signal(t testing.TB, signal string) {
	t.Helper()
	Systemctl(t, "kill", "--kill-whom=main", "--signal="+signal, Service)
}
