package main

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/golden"
)

// The captured run has benchmarks with and without numbers of nodes, one that
// reports processor time and a factor, and one that fails.
func TestCapturedRunReadsAsItsGoldenFile(t *testing.T) {
	run, err := os.Open("testdata/run.out")
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	var out strings.Builder
	if err := summarize(run, bufio.NewWriter(&out), "github.com/evictd/evictd"); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/run.txt", out.String())
}

func TestLongTimesAndShortOnesHaveUnitsThatSuitThem(t *testing.T) {
	for ns, want := range map[float64]string{3.25: "3.25 ns", 1234: "1.234 µs", 20_000_000: "20 ms", 3.5e9: "3.5 s", 7e12: "7000 s"} {
		if got := duration(ns); got != want {
			t.Errorf("%v: %q, want %q", ns, got, want)
		}
	}
}
