package simulate_test

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
)

// The behaviour table maps every rule of node-pressure eviction and of scheduling
// to what shows it. The rules are lines of the files that parts name:
//
//	# title of a section
//	id<TAB>statement
//	id<TAB>statement<TAB>note
//
// The note says what is to show the rule where it is no scenario (one of
// kinds), "mended by M.n" where evictd does otherwise, or "left out: why".
//
// A proof names its rule in a comment of its own that begins with "rule:" and
// the id: anywhere in a scenario or a case of caseFolders, and above or inside a
// test, benchmark or fuzz target.
const tableFile = "docs/behaviour.md"

// part of the table, with a file of rules of its own.
type part struct{ title, intro, file string }

var parts = []part{
	{"What evictd does, rule by rule", `Every rule of the kubelet's node-pressure eviction, and what shows that evictd follows it.
Rules that evictd mends name the rule (M) that takes their place; what is left out says why.`, "eviction/simulate/testdata/rules.txt"},
	{"What evictd-scheduler does, rule by rule", `Every rule of kube-scheduler 1.37, and what shows that evictd-scheduler follows it.`,
		"scheduleradapter/simulate/testdata/rules.txt"},
	{"How both are deployed, rule by rule", `What an installation into a cluster does to its nodes, and what shows it.`, "deploy/rules.txt"},
}

var (
	caseFolders = []string{
		"eviction/simulate/testdata", "eviction/config/testdata", "eviction/reclaim/testdata", "oom/testdata",
		"scheduleradapter/simulate/testdata", "scheduleradapter/config/testdata", "scheduleradapter/queue/testdata",
	}
	kinds = []string{"config case", "oom case", "reclaim case", "queue script", "parser test", "test", "integration test"}

	mended   = regexp.MustCompile(`^mended by (M\.\d+)$`)
	leftOut  = regexp.MustCompile(`^left out: \S`)
	ruleLine = regexp.MustCompile(`(?m)^\s*#\s*rule:\s*(\S+)`)
	ruleText = regexp.MustCompile(`(?m)^//\s*rule:\s*(\S+)`)
	provable = regexp.MustCompile(`^(Test|Fuzz|Benchmark)`)
)

type rule struct {
	section, id, statement, note string
}

// proof shows a rule: a scenario, a case, or a test.
type proof struct {
	id, name string
	file     string // below the top of the repository, slashes
}

func parseRules(rulesFile, text string) ([]rule, error) {
	var (
		rules   []rule
		ids     = map[string]bool{}
		faults  []error
		section string
	)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if title, found := strings.CutPrefix(line, "# "); found {
			section = title
			continue
		}
		fields := append(strings.Split(line, "\t"), "")
		if len(fields) < 3 || len(fields) > 4 || fields[0] == "" || fields[1] == "" {
			faults = append(faults, fmt.Errorf("%s: %q is not id, statement and note between tabs", rulesFile, line))
			continue
		}
		if ids[fields[0]] {
			faults = append(faults, fmt.Errorf("%s: rule %s stands there twice", rulesFile, fields[0]))
		}
		ids[fields[0]] = true
		rules = append(rules, rule{section, fields[0], fields[1], fields[2]})
	}
	for _, r := range rules {
		by := mended.FindStringSubmatch(r.note)
		if by != nil && ids[by[1]] || by == nil && (r.note == "" || leftOut.MatchString(r.note) || slices.Contains(kinds, r.note)) {
			continue
		}
		faults = append(faults, fmt.Errorf("%s: rule %s has an unknown note %q", rulesFile, r.id, r.note))
	}
	return rules, errors.Join(faults...)
}

// findProofs reads the cases and tests of a repository.
func findProofs(repository fs.FS) ([]proof, error) {
	var proofs []proof
	err := fs.WalkDir(repository, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		switch {
		case entry.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "bin" || base == "fuzz"):
			return fs.SkipDir
		case entry.IsDir(), path.Ext(name) == ".transcript": // repeats its script
			return nil
		case slices.ContainsFunc(caseFolders, func(folder string) bool { return strings.HasPrefix(name, folder+"/") }):
			content, err := fs.ReadFile(repository, name)
			if err != nil {
				return err
			}
			for _, found := range ruleLine.FindAllStringSubmatch(string(content), -1) {
				proofs = append(proofs, proof{found[1], strings.TrimSuffix(base, path.Ext(base)), name})
			}
			return nil
		case strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "testdata/"):
			shown, err := testProofs(repository, name)
			proofs = append(proofs, shown...)
			return err
		}
		return nil
	})
	return proofs, err
}

func testProofs(repository fs.FS, name string) ([]proof, error) {
	source, err := fs.ReadFile(repository, name)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var proofs []proof
	for _, group := range file.Comments {
		for _, comment := range group.List {
			found := ruleText.FindStringSubmatch(comment.Text)
			if found == nil {
				continue
			}
			test := testAround(file, comment.Pos())
			if test == "" {
				return nil, fmt.Errorf("%s: rule %s is named outside a test", fset.Position(comment.Pos()), found[1])
			}
			proofs = append(proofs, proof{found[1], test, name})
		}
	}
	return proofs, nil
}

// testAround is the test in whose body or comment pos lies.
func testAround(file *ast.File, pos token.Pos) string {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || !provable.MatchString(f.Name.Name) {
			continue
		}
		start := f.Pos()
		if f.Doc != nil {
			start = f.Doc.Pos()
		}
		if start <= pos && pos < f.End() {
			return f.Name.Name
		}
	}
	return ""
}

// writeTable writes docs/behaviour.md, with the rules of each part. A proof of a
// rule that is not there is an error.
func writeTable(rules [][]rule, proofs []proof) (string, error) {
	shown := map[string]map[string]bool{} // links by rule
	for _, r := range slices.Concat(rules...) {
		shown[r.id] = map[string]bool{}
	}
	var faults []error
	for _, p := range proofs {
		if shown[p.id] == nil {
			faults = append(faults, fmt.Errorf("%s: %s shows rule %s, which is in no file of rules", p.file, p.name, p.id))
			continue
		}
		shown[p.id][fmt.Sprintf("[%s](../%s)", p.name, p.file)] = true
	}
	var table strings.Builder
	for i, rules := range rules {
		if i > 0 {
			table.WriteByte('\n')
		}
		table.WriteString(parts[i].write(rules, shown))
	}
	return table.String(), errors.Join(faults...)
}

func (p part) write(rules []rule, shown map[string]map[string]bool) string {
	var body strings.Builder
	counts := map[string]int{}
	section := ""
	for _, r := range rules {
		if r.section != section {
			section = r.section
			fmt.Fprintf(&body, "\n## %s\n\n| rule | what it says | shown by |\n|---|---|---|\n", section)
		}
		links := strings.Join(slices.Sorted(maps.Keys(shown[r.id])), "<br>")
		class, cell := classify(r.note, links)
		counts[class]++
		fmt.Fprintf(&body, "| %s | %s | %s |\n", r.id, markdown.Replace(r.statement), cell)
	}
	head := fmt.Sprintf(`<!-- Generated by "make rewrite" from %s and the "rule:" comments of scenarios, cases and tests. -->
# %s

%s

%d rules: %d shown, %d mended, %d left out, %d without proof.
`, p.file, p.title, p.intro, len(rules), counts["shown"], counts["mended"], counts["left out"], counts["no proof"])
	return head + body.String()
}

var markdown = strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`)

// classify says under which count a rule goes and what its last cell shows.
func classify(note, links string) (class, cell string) {
	by := mended.FindStringSubmatch(note)
	switch {
	case links != "":
		return "shown", links
	case by != nil:
		return "mended", "mended: " + by[1]
	case leftOut.MatchString(note):
		return "left out", note
	default:
		return "no proof", fmt.Sprintf("**no proof** (%s)", cmp.Or(note, "scenario"))
	}
}

func TestBehaviourTableIsUpToDate(t *testing.T) {
	top := filepath.Join("..", "..")
	var rules [][]rule
	for _, p := range parts {
		text := require.ReadFile(t, filepath.Join(top, p.file))
		of, err := parseRules(p.file, string(text))
		require.NoError(t, err)
		rules = append(rules, of)
	}
	proofs, err := findProofs(os.DirFS(top))
	require.NoError(t, err)
	table, err := writeTable(rules, proofs)
	require.NoError(t, err)
	golden.Check(t, filepath.Join(top, tableFile), table)
}

func TestBehaviourTableShowsScenariosTestsAndWhatHasNoProof(t *testing.T) {
	rules, err := parseRules("rules.txt", "# Loop\n3.7\tstrict: a < b\n3.8\tsticky\n3.9\tchance\tmended by M.1\n3.10\tgates\tleft out: none here\nM.1\tfixed\ttest\n")
	require.NoError(t, err)
	proofs, err := findProofs(fstest.MapFS{
		"eviction/simulate/testdata/equal-is-not-less.yaml": {Data: []byte("# rule: 3.7 strict comparison\nkind: Scenario\n")},
		"eviction/order_test.go":                            {Data: []byte("package eviction\n\n// rule: M.1\nfunc TestOrder() {}\n\nfunc TestEqual() {\n\t// rule: 3.7\n}\n")},
	})
	require.NoError(t, err)
	table, err := writeTable([][]rule{rules, {{"Filters", "S1.1", "taints", ""}}}, proofs)
	require.NoError(t, err)
	for _, want := range []string{
		"5 rules: 2 shown, 1 mended, 1 left out, 1 without proof.",
		"| 3.7 | strict: a \\< b | [TestEqual](../eviction/order_test.go)<br>[equal-is-not-less](../eviction/simulate/testdata/equal-is-not-less.yaml) |",
		"| 3.8 | sticky | **no proof** (scenario) |",
		"| 3.9 | chance | mended: M.1 |",
		"| 3.10 | gates | left out: none here |",
		"1 rules: 0 shown, 0 mended, 0 left out, 1 without proof.\n\n## Filters\n",
		"| M.1 | fixed | [TestOrder](../eviction/order_test.go) |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in:\n%s", want, table)
		}
	}
}

func TestBehaviourTableRefusesWhatItCannotPlace(t *testing.T) {
	for _, bad := range []struct{ rules, test, want string }{
		{"3.7\tstrict", "package p\n\n// rule: 3.70\nfunc TestX() {}\n", "shows rule 3.70"},
		{"3.7\tstrict", "package p\n\n// rule: 3.7\nvar x int\n", "outside a test"},
		{"3.7\tstrict\n3.7\tagain", "package p\n", "twice"},
		{"3.7\tstrict\tmended by M.9", "package p\n", "unknown note"},
		{"3.7", "package p\n", "between tabs"},
	} {
		rules, parsing := parseRules("rules.txt", bad.rules)
		proofs, finding := findProofs(fstest.MapFS{"p/x_test.go": {Data: []byte(bad.test)}})
		_, writing := writeTable([][]rule{rules}, proofs)
		if err := errors.Join(parsing, finding, writing); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%q with %q: error %v, want one with %q", bad.rules, bad.test, err, bad.want)
		}
	}
}
