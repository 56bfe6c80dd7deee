// Package golden holds what tests produce against files of the tree. Where
// EVICTD_REWRITE=1, as `make rewrite` sets it, the files are written instead.
package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Check fails the test where the file does not hold exactly what was got.
func Check[T string | []byte](t testing.TB, file string, got T) {
	t.Helper()
	if os.Getenv("EVICTD_REWRITE") == "1" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		line, isNow, was := difference(string(got), string(want))
		t.Errorf("%s differs from line %d on; make rewrite and review the diff\ngot:\n%s\nwant:\n%s", file, line, isNow, was)
	}
}

// difference is the first line in which texts differ, and what each says there,
// as many lines as one can take in.
func difference(a, b string) (line int, fromA, fromB string) {
	const shown = 20
	linesA, linesB := strings.SplitAfter(a, "\n"), strings.SplitAfter(b, "\n")
	for line < min(len(linesA), len(linesB)) && linesA[line] == linesB[line] {
		line++
	}
	from := func(lines []string) string { return strings.Join(lines[line:min(line+shown, len(lines))], "") }
	return line + 1, from(linesA), from(linesB)
}

// Each runs a test, named after the file, for every file that a pattern of
// filepath.Glob means.
func Each(t *testing.T, pattern string, test func(t *testing.T, file string)) {
	t.Helper()
	for _, file := range glob(t, pattern) {
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) { test(t, file) })
	}
}

// Seed gives a fuzz target the contents of every file that a pattern of
// filepath.Glob means.
func Seed(f *testing.F, pattern string) {
	f.Helper()
	for _, file := range glob(f, pattern) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

// glob lists the files; one at least there must be.
func glob(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no file is %s: %v", pattern, err)
	}
	return files
}

// Beside is the file of the same name with another ending, such as ".txt".
func Beside(file, ending string) string {
	return strings.TrimSuffix(file, filepath.Ext(file)) + ending
}
