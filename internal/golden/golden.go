// Package golden holds what tests produce against files of the tree. Where
// EVICTD_REWRITE=1, as `make rewrite` sets it, the files are written instead.
package golden

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Check fails the test where the file does not hold exactly what was got.
func Check[T string | []byte](t testing.TB, file string, got T) {
	t.Helper()
	if rewriting() {
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

func rewriting() bool { return os.Getenv("EVICTD_REWRITE") == "1" }

// Section is Check of the lines of a file between "<!-- NAME: generated -->" and
// "<!-- NAME ends -->"; a file may hold sections of several packages' tests.
func Section(t testing.TB, file, name, got string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil { // tests of other packages may rewrite theirs
		t.Fatal(err)
	}
	all, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(all), "<!-- "+name+": generated -->\n")
	_, after, ends := strings.Cut(rest, "<!-- "+name+" ends -->\n")
	if !begins || !ends {
		t.Fatalf("%s has no section %s", file, name)
	}
	Check(t, file, before+"<!-- "+name+": generated -->\n"+got+"<!-- "+name+" ends -->\n"+after)
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
