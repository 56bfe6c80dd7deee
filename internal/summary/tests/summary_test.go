package tests

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/golden"
)

func summaryOf(t *testing.T, input string) string {
	t.Helper()
	var out strings.Builder
	if err := Summarize(strings.NewReader(input), bufio.NewWriter(&out), "example.org/m"); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The captured run has packages that pass, fail, panic, do not compile and have
// no tests, and tests that are skipped with a reason, without, and in twos.
func TestCapturedRunReadsAsItsGoldenFile(t *testing.T) {
	input, err := os.ReadFile(filepath.Join("testdata", "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("testdata", "run.txt"), summaryOf(t, string(input)))
}

func TestPackageThatNeverEndedFailsWithTheOutputOfTheTestThatRan(t *testing.T) {
	got := summaryOf(t, `{"Action":"start","Package":"example.org/m/kill"}
{"Action":"output","Package":"example.org/m/kill","Test":"TestWaits","Output":"    k_test.go:7: still here\n"}
`)
	for _, want := range []string{"FAIL", "still here", "--- TestWaits did not end", "\n0 passed, 1 failed, 0 skipped\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}

func TestLinesThatAreNotEventsPassThrough(t *testing.T) {
	const line = "go: cannot find main module\n"
	if got := summaryOf(t, line); !strings.HasPrefix(got, line) {
		t.Errorf("summary does not start with %q:\n%s", line, got)
	}
}

func TestCachedPackageSaysSo(t *testing.T) {
	got := summaryOf(t, `{"Action":"pass","Package":"example.org/m/stats","Test":"TestAdds"}
{"Action":"output","Package":"example.org/m/stats","Output":"ok  \texample.org/m/stats\t(cached)\n"}
{"Action":"pass","Package":"example.org/m/stats","Elapsed":0.01}
`)
	if want := "ok      cached  stats "; !strings.HasPrefix(got, want) {
		t.Errorf("summary does not start with %q:\n%s", want, got)
	}
}

func TestRunWithoutTestsEndsWithZeros(t *testing.T) {
	if got := summaryOf(t, ""); !strings.HasSuffix(got, "\n0 passed, 0 failed, 0 skipped\n") {
		t.Errorf("unexpected summary:\n%s", got)
	}
}
