package profile

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// TestEveryPluginIsRegistered compares the names that the packages under plugins
// declare with the registry.
func TestEveryPluginIsRegistered(t *testing.T) {
	files, err := filepath.Glob("../plugins/*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	registered := map[string]bool{}
	for _, p := range BuiltIn() {
		if registered[p.Name] {
			t.Errorf("plugin %s is registered twice", p.Name)
		}
		if registered[p.Name] = true; len(p.Points) == 0 {
			t.Errorf("plugin %s implements no extension point", p.Name)
		}
	}
	page := require.ReadFile(t, "../../docs/scheduler.md")
	for _, p := range BuiltIn() {
		if p.Default && !strings.Contains(string(page), "`"+p.Name+"`") {
			t.Errorf("docs/scheduler.md does not name plugin %s", p.Name)
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "plugintest") {
			continue
		}
		text := require.ReadFile(t, file)
		for line := range strings.Lines(string(text)) {
			declaration := strings.Fields(strings.TrimPrefix(line, "const "))
			if len(declaration) == 3 && strings.HasSuffix(declaration[0], "Name") && declaration[1] == "=" {
				if name := strings.Trim(declaration[2], `"`); !registered[name] {
					t.Errorf("%s declares plugin %s, which registry.go does not register", file, name)
				}
			}
		}
	}
}
