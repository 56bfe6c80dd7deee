package main

import (
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

func TestSkippedTestsAreCountedByReason(t *testing.T) {
	const run = `not JSON
{"Action":"output","Package":"a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"    one_test.go:7: skipped: cgroups need root\n"}
{"Action":"skip","Package":"a","Test":"TestOne"}
{"Action":"output","Package":"b","Test":"TestOne","Output":"    one_test.go:9: cgroups need\n"}
{"Action":"output","Package":"b","Test":"TestOne","Output":"        root\n"}
{"Action":"skip","Package":"b","Test":"TestOne"}
{"Action":"output","Package":"a","Test":"TestTwo","Output":"    two_test.go:7: an entry of a test that passes\n"}
{"Action":"pass","Package":"a","Test":"TestTwo"}
{"Action":"skip","Package":"a","Test":"TestThree"}
{"Action":"skip","Package":"c"}`
	const want = `
skipped, by reason:
    2  cgroups need root
    1  no reason given
`
	for run, want := range map[string]string{run: want, "": ""} {
		count := map[string]int{}
		require.NoError(t, countSkips(strings.NewReader(run), count, map[string]bool{}))
		var out strings.Builder
		writeSkips(&out, count)
		if out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
}
