// Package failed reads the output of `go test -json` and says what to run again:
// a line "MODULE PACKAGE TESTS" for each package in which tests failed, with the
// directory of its module, the package's below that, and what -run wants.
package failed

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// event is what counts here of a TestEvent of `go doc cmd/test2json`.
type event struct{ Action, Package, Test string }

// List writes the lines. It fails where more failed than tests, which is not mended
// by running them again: a package that does not compile, or that leaves
// something behind.
func List(in io.Reader, out *bufio.Writer, module string) error {
	failed := map[string]map[string]bool{} // tests by package
	for lines := json.NewDecoder(in); ; {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read test events: %w", err)
		}
		switch {
		case e.Action == "build-fail":
			return errors.New("there is what does not compile")
		case e.Action != "fail":
		case e.Test == "" && failed[e.Package] == nil:
			return fmt.Errorf("%s failed, and none of its tests", e.Package)
		case e.Test != "":
			if failed[e.Package] == nil {
				failed[e.Package] = map[string]bool{}
			}
			name, _, _ := strings.Cut(e.Test, "/")
			failed[e.Package][name] = true
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(failed)) {
		path, below := strings.CutPrefix(pkg, module+"/")
		if !below {
			return fmt.Errorf("package %s: expected one of module %s", pkg, module)
		}
		root := moduleOf(path)
		path, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s ./%s ^(%s)$\n", root, path, strings.Join(slices.Sorted(maps.Keys(failed[pkg])), "|"))
	}
	return out.Flush()
}

// moduleOf is the nearest directory at or above a path that has a go.mod.
func moduleOf(path string) string {
	for path != "." {
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
			break
		}
		path = filepath.Dir(path)
	}
	return path
}
