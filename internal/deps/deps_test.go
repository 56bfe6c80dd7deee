// Package deps holds the house to its rules: which package may import which,
// where foreign code may stand, and what pure packages may not do. It has tests
// only; rules_test.go is the data.
package deps

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

const module = "github.com/evictd/evictd"

// pkg has fields that `go list -json` prints of a package.
type pkg struct {
	ImportPath   string
	Dir          string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// graph is every package that the project's packages reach, by import path.
type graph map[string]pkg

// list is the graph of the main module.
func list(t *testing.T) graph {
	t.Helper()
	g, err := listed()
	require.NoError(t, err)
	return g
}

// listed asks the go command, once.
var listed = sync.OnceValues(func() (graph, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	g := graph{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return g, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode package list: %w", err)
		}
		g[p.ImportPath] = p
	}
})

// project yields the names of the project's own packages, sorted.
func (g graph) project() []string {
	var names []string
	for importPath := range g {
		if name, ours := below(importPath); ours {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (g graph) pkg(name string) pkg { return g[path.Join(module, name)] }

func below(importPath string) (name string, ours bool) {
	return strings.CutPrefix(importPath, module+"/")
}

func matches(name string) func(pattern string) bool {
	return func(pattern string) bool {
		if last, any := strings.CutPrefix(pattern, "*/"); any {
			return path.Base(name) == last
		}
		if top, all := strings.CutSuffix(pattern, "/..."); all {
			return name == top || strings.HasPrefix(name, top+"/")
		}
		return name == pattern
	}
}

func anyOf(patterns []string, name string) bool { return slices.ContainsFunc(patterns, matches(name)) }

// within says whether the import path is one of the paths or below one.
func within(paths []string, importPath string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		return importPath == p || strings.HasPrefix(importPath, p+"/")
	})
}

func arrowFaults(g graph) (faults []string) {
	for _, name := range g.project() {
		row := slices.IndexFunc(arrows, func(row arrow) bool { return row.pkg == name })
		if row < 0 {
			row = slices.IndexFunc(arrows, func(row arrow) bool { return matches(name)(row.pkg) })
		}
		if row < 0 {
			faults = append(faults, fmt.Sprintf("%s has no row among the arrows: say there what it may import, and why", name))
			continue
		}
		for _, imported := range g.pkg(name).Imports {
			if to, ours := below(imported); ours && !anyOf(arrows[row].may, to) {
				faults = append(faults, fmt.Sprintf("%s imports %s: %s", name, to, arrows[row].why))
			}
		}
	}
	return faults
}

func foundationFaults(g graph) (faults []string) {
	for _, name := range g.project() {
		for _, imported := range g.pkg(name).Imports {
			if to, ours := below(imported); ours && anyOf(foundation, name) && anyOf(upper, to) {
				faults = append(faults, fmt.Sprintf("%s imports %s: a foundation imports nothing that is built on it", name, to))
			}
		}
	}
	return faults
}

func fenceFaults(g graph) (faults []string) {
	for _, f := range fences {
		for _, name := range g.project() {
			if anyOf(f.places, name) {
				continue
			}
			var chain []string
			if f.deep {
				chain = reach(g, path.Join(module, name), f, map[string]bool{})
			} else if i := slices.IndexFunc(g.pkg(name).Imports, func(p string) bool { return within(f.paths, p) }); i >= 0 {
				chain = []string{g.pkg(name).Imports[i]}
			}
			if chain != nil {
				faults = append(faults, fmt.Sprintf("%s imports %s: %s", name, strings.Join(chain, ", which imports "), f.why))
			}
		}
	}
	return faults
}

// reach finds the imports that lead from a package to what the fence keeps in,
// but for those that lead through a place inside it.
func reach(g graph, from string, f fence, seen map[string]bool) []string {
	for _, imported := range g[from].Imports {
		if within(f.paths, imported) {
			return []string{imported}
		}
		name, ours := below(imported)
		if seen[imported] || ours && anyOf(f.places, name) {
			continue
		}
		seen[imported] = true
		if rest := reach(g, imported, f, seen); rest != nil {
			return append([]string{imported}, rest...)
		}
	}
	return nil
}

func impureImportFaults(g graph) (faults []string) {
	for _, name := range g.project() {
		if !anyOf(pure, name) {
			continue
		}
		for _, imported := range g.pkg(name).Imports {
			for _, rule := range impureImports {
				if within(rule.paths, imported) {
					faults = append(faults, fmt.Sprintf("%s imports %s: %s", name, imported, rule.why))
				}
			}
		}
	}
	return faults
}

// impureUses finds in a file the go statements and the names that a pure package
// may not use, however their package was renamed.
func impureUses(file *ast.File, at func(token.Pos) token.Position) (faults []string) {
	local := map[string]string{} // import path by local name
	for _, spec := range file.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(importPath)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		local[name] = importPath
	}
	for node := range ast.Preorder(file) {
		switch n := node.(type) {
		case *ast.GoStmt:
			faults = append(faults, fmt.Sprintf("%s: go statement: a pure package starts nothing that outlives the call", at(n.Pos())))
		case *ast.SelectorExpr:
			qualifier, ok := n.X.(*ast.Ident)
			if !ok {
				continue
			}
			for _, rule := range impureNames {
				if local[qualifier.Name] == rule.path && slices.Contains(rule.names, n.Sel.Name) {
					faults = append(faults, fmt.Sprintf("%s: %s.%s: %s", at(n.Pos()), rule.path, n.Sel.Name, rule.why))
				}
			}
		}
	}
	return faults
}

func report(t *testing.T, faults []string) {
	t.Helper()
	for _, fault := range faults {
		t.Error(fault)
	}
}

func TestProjectImportsFollowTheArrows(t *testing.T) { report(t, arrowFaults(list(t))) }

func TestTheFoundationImportsNothingThatIsBuiltOnIt(t *testing.T) {
	report(t, foundationFaults(list(t)))
}

func TestForeignCodeStaysBehindItsFence(t *testing.T) { report(t, fenceFaults(list(t))) }

func TestLeanProgramsLinkNoClient(t *testing.T) {
	g := list(t)
	for _, rule := range lean {
		wall := fence{paths: rule.paths}
		if chain := reach(g, path.Join(module, rule.program), wall, map[string]bool{}); chain != nil {
			t.Errorf("%s imports %s: %s", rule.program, strings.Join(chain, ", which imports "), rule.why)
		}
	}
}

func TestNoTestOfTheMainModuleImportsKubernetesItself(t *testing.T) {
	g := list(t)
	for _, name := range g.project() {
		p := g.pkg(name)
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			if within([]string{"k8s.io/kubernetes"}, imported) {
				t.Errorf("a test of %s imports %s: it is no library; a test module under test/ may import it", name, imported)
			}
		}
	}
}

func TestPurePackagesImportNothingImpure(t *testing.T) { report(t, impureImportFaults(list(t))) }

func TestPurePackagesTakeTimeAsAnArgumentAndStartNothing(t *testing.T) {
	g := list(t)
	for _, name := range g.project() {
		if !anyOf(pure, name) {
			continue
		}
		for _, file := range g.pkg(name).GoFiles {
			fset := token.NewFileSet()
			parsed, err := parser.ParseFile(fset, filepath.Join(g.pkg(name).Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatalf("parse %s of %s: %v", file, name, err)
			}
			report(t, impureUses(parsed, fset.Position))
		}
	}
}

func TestPackageNamesSayWhatIsInside(t *testing.T) {
	for _, name := range list(t).project() {
		if slices.Contains(vague, path.Base(name)) {
			t.Errorf("%s: name the package after the noun it holds", name)
		}
	}
}

func TestTopLevelFoldersAreThoseOfTheHouse(t *testing.T) {
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, entry := range entries {
		if entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") && !slices.Contains(folders, entry.Name()) {
			t.Errorf("folder %s: the house has no such room (folders in rules_test.go lists them)", entry.Name())
		}
	}
}
