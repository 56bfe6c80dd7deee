package deps

import (
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// house is a graph of one project package with its imports, and more foreign
// packages with theirs.
func house(name string, imports []string, foreign map[string][]string) graph {
	g := graph{}
	for importPath, imports := range foreign {
		g[importPath] = pkg{ImportPath: importPath, Imports: imports}
	}
	ours := path.Join(module, name)
	g[ours] = pkg{ImportPath: ours, Imports: imports}
	return g
}

func TestEveryRuleSpeaksWhenItIsBroken(t *testing.T) {
	for _, broken := range []struct {
		name   string
		faults []string
		want   string
	}{
		{"an arrow against the stream",
			arrowFaults(house("stats", []string{module + "/eviction"}, nil)),
			"stats imports eviction: values are the bottom of the house"},
		{"a helper that imports the core",
			foundationFaults(house("internal/page", []string{module + "/eviction"}, nil)),
			"internal/page imports eviction: a foundation"},
		{"a package without a row",
			arrowFaults(house("eviction/extra", nil, nil)),
			"eviction/extra has no row"},
		{"a foreign package outside its fence",
			fenceFaults(house("eviction/control", []string{"golang.org/x/sys/unix"}, nil)),
			"eviction/control imports golang.org/x/sys/unix: system calls"},
		{"a deep fence crossed through another module",
			fenceFaults(house("eviction/config", []string{"example.org/flags"}, map[string][]string{"example.org/flags": {"k8s.io/client-go/rest"}})),
			"eviction/config imports example.org/flags, which imports k8s.io/client-go/rest: the API server's client"},
		{"a pure package that logs",
			impureImportFaults(house("oom", []string{"log/slog"}, nil)),
			"oom imports log/slog: a pure package returns reasons"},
		{"a renamed clock",
			usesIn(t, "import clock \"time\"\nvar now = clock.Now()"),
			"time.Now: time is an argument"},
		{"a goroutine",
			usesIn(t, "func f() { go f() }"),
			"go statement"},
	} {
		t.Run(broken.name, func(t *testing.T) {
			if len(broken.faults) != 1 || !strings.Contains(broken.faults[0], broken.want) {
				t.Errorf("faults %q, want one with %q", broken.faults, broken.want)
			}
		})
	}
}

func TestDeepFenceMayBeCrossedThroughAPlaceInsideIt(t *testing.T) {
	g := house("eviction/pods", []string{module + "/cri"}, nil)
	g[module+"/cri"] = pkg{ImportPath: module + "/cri", Imports: []string{"google.golang.org/grpc"}}
	if faults := fenceFaults(g); len(faults) != 0 {
		t.Errorf("unexpected faults %q", faults)
	}
}

func TestMethodsNamedLikeAClockAreNoClock(t *testing.T) {
	if faults := usesIn(t, "import \"time\"\nfunc f(state struct{ Now time.Time }) time.Time { return state.Now }"); len(faults) != 0 {
		t.Errorf("unexpected faults %q", faults)
	}
}

func usesIn(t *testing.T, source string) []string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "pure.go", "package pure\n"+source, parser.SkipObjectResolution)
	require.NoError(t, err)
	return impureUses(file, fset.Position)
}
