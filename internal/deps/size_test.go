package deps

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// sizes is a ratchet: what a package may have at most, and why it has grown. A change that makes a package larger edits
// its number and says why in the same line; EVICTD_REWRITE=1 lowers the numbers, and adds and drops packages.
const sizes = "testdata/sizes.txt"

const sizesHead = `# At most, of a package without its tests: lines, fields of one struct, methods of one type, exported names; and why it grew.
`

// size is how much there is to hold in the head.
type size struct{ lines, fields, methods, exported int }

func (s *size) values() [4]*int { return [4]*int{&s.lines, &s.fields, &s.methods, &s.exported} }

var quantities = [4]string{"lines", "fields of one struct", "methods of one type", "exported names"}

// measure reads the files of a package.
func measure(t *testing.T, p pkg) (s size) {
	t.Helper()
	methods := map[string]int{}
	for _, name := range p.GoFiles {
		text := require.ReadFile(t, filepath.Join(p.Dir, name))
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		s.lines += bytes.Count(text, []byte("\n"))
		export := func(names ...*ast.Ident) {
			for _, name := range names {
				if name.IsExported() {
					s.exported++
				}
			}
		}
		for node := range ast.Preorder(file) {
			switch n := node.(type) {
			case *ast.StructType:
				s.fields = max(s.fields, n.Fields.NumFields())
			case *ast.FuncDecl:
				if n.Recv == nil {
					export(n.Name)
					break
				}
				receiver := receiverName(n)
				methods[receiver]++
				s.methods = max(s.methods, methods[receiver])
				if ast.IsExported(receiver) {
					export(n.Name)
				}
			}
		}
		for _, declared := range file.Decls {
			if group, is := declared.(*ast.GenDecl); is {
				for _, spec := range group.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						export(spec.Name)
					case *ast.ValueSpec:
						export(spec.Names...)
					}
				}
			}
		}
	}
	return s
}

func receiverName(f *ast.FuncDecl) string {
	for node := range ast.Preorder(f.Recv.List[0].Type) {
		if name, is := node.(*ast.Ident); is {
			return name.Name
		}
	}
	return ""
}

// TestPackagesGrowForAReasonOnly compares packages with what they may have. Tests and what they alone use are not counted.
func TestPackagesGrowForAReasonOnly(t *testing.T) {
	g := list(t)
	bounds, reasons := readSizes(t)
	var rewritten strings.Builder
	rewritten.WriteString(sizesHead)
	for _, name := range g.project() {
		if strings.HasPrefix(name, "test/") || len(g.pkg(name).GoFiles) == 0 {
			continue
		}
		is := measure(t, g.pkg(name))
		bound, known := bounds[name]
		if !known {
			bound = is
		}
		delete(bounds, name)
		for i, most := range bound.values() {
			if now := *is.values()[i]; now > *most {
				t.Errorf("%s has %d %s, and may have %d: make it smaller, or edit the number and the reason in %s", name, now, quantities[i], *most, sizes)
			} else {
				*most = now
			}
		}
		fmt.Fprintln(&rewritten, strings.TrimSpace(fmt.Sprintf("%-42s %5d %3d %3d %4d  %s", name, bound.lines, bound.fields, bound.methods, bound.exported, reasons[name])))
		if !known && os.Getenv("EVICTD_REWRITE") != "1" {
			t.Errorf("%s has no line in %s: EVICTD_REWRITE=1 adds it", name, sizes)
		}
	}
	if os.Getenv("EVICTD_REWRITE") == "1" {
		require.NoError(t, os.WriteFile(sizes, []byte(rewritten.String()), 0o644))
		return
	}
	for name := range bounds {
		t.Errorf("%s has a line in %s, and is no package: EVICTD_REWRITE=1 drops it", name, sizes)
	}
}

func readSizes(t *testing.T) (bounds map[string]size, reasons map[string]string) {
	t.Helper()
	bounds, reasons = map[string]size{}, map[string]string{}
	text, err := os.ReadFile(sizes)
	if os.Getenv("EVICTD_REWRITE") != "1" {
		require.NoError(t, err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		var s size
		v := s.values()
		if _, err := fmt.Sscan(strings.Join(words[1:min(5, len(words))], " "), v[0], v[1], v[2], v[3]); err != nil {
			t.Fatalf("%s: %q: expected a package and four numbers: %v", sizes, line, err)
		}
		bounds[words[0]], reasons[words[0]] = s, strings.Join(words[5:], " ")
	}
	return bounds, reasons
}

func TestTheRatchetCountsWhatStandsInAFile(t *testing.T) {
	dir := t.TempDir()
	text := "package p\n\ntype T struct{ A, b int }\n\nfunc (t *T) M() {}\n\nfunc (t T) n() {}\n\nconst (\n\tC = 1\n\td = 2\n)\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p.go"), []byte(text), 0o600))
	if got := measure(t, pkg{Dir: dir, GoFiles: []string{"p.go"}}); got != (size{lines: 12, fields: 2, methods: 2, exported: 3}) {
		t.Errorf("counted %+v", got)
	}
}
