package failed

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatToRunAgainIsNamedByModulePackageAndTest(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root)
	nested := filepath.Join("test", "nested")
	if err := os.MkdirAll(nested, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(nested, "go.mod"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const events = `
{"Action":"fail","Package":"example.org/m/test/nested/suite","Test":"TestB/sub"}
{"Action":"fail","Package":"example.org/m/test/nested/suite","Test":"TestB"}
{"Action":"fail","Package":"example.org/m/test/nested/suite","Test":"TestA"}
{"Action":"pass","Package":"example.org/m/test/nested/suite","Test":"TestC"}
{"Action":"fail","Package":"example.org/m/test/nested/suite"}
{"Action":"fail","Package":"example.org/m/kill","Test":"TestKills"}
{"Action":"fail","Package":"example.org/m/kill"}
{"Action":"pass","Package":"example.org/m/stats"}
`
	for _, c := range []struct{ name, events, want, err string }{
		{"tests", events, ". ./kill ^(TestKills)$\ntest/nested ./suite ^(TestA|TestB)$\n", ""},
		{"nothing", "", "", ""},
		{"what is left behind", `{"Action":"fail","Package":"example.org/m/kill"}`, "", "none of its tests"},
		{"what does not compile", `{"Action":"build-fail","ImportPath":"example.org/m/kill"}`, "", "compile"},
		{"what is no event", "go: cannot find main module", "", "read test events"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			err := List(strings.NewReader(c.events), bufio.NewWriter(&out), "example.org/m")
			if out.String() != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %q, %v; want %q, %q", out.String(), err, c.want, c.err)
			}
		})
	}
}
