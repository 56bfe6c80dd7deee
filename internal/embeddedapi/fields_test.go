package embeddedapi

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
)

// TestFieldsAreThoseOfTheAPI holds that apply/fields.yaml has what client-go says of the structure of
// the kinds that are served, a type a line.
func TestFieldsAreThoseOfTheAPI(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go").Output()
	require.NoError(t, err)
	source := require.ReadFile(t, filepath.Join(strings.TrimSpace(string(dir)), "applyconfigurations/internal/internal.go"))
	_, rest, _ := strings.Cut(string(source), "typed.YAMLObject(`")
	text, _, found := strings.Cut(rest, "`)")
	var all struct{ Types []map[string]any }
	if err := sigsyaml.Unmarshal([]byte(text), &all); err != nil || !found {
		t.Fatalf("client-go's structure of the kinds: %v", err)
	}
	scheme, needed := newScheme(), map[string]bool{"__untyped_atomic_": true, "__untyped_deduced_": true}
	for _, k := range newKinds() {
		name, err := scheme.ToOpenAPIDefinitionName(k.GroupVersionKind)
		require.NoError(t, err)
		needed[name] = true
	}
	for grown := true; grown; {
		grown = false
		for _, of := range all.Types {
			if needed[of["name"].(string)] {
				grown = reach(of, needed) || grown
			}
		}
	}
	var kept strings.Builder
	kept.WriteString("types:\n")
	for _, of := range all.Types {
		if needed[of["name"].(string)] {
			line, err := json.Marshal(of)
			require.NoError(t, err)
			kept.WriteString("- " + string(line) + "\n")
			delete(needed, of["name"].(string))
		}
	}
	if len(needed) > 0 {
		t.Errorf("client-go does not have %v", needed)
	}
	golden.Check(t, "apply/fields.yaml", kept.String())
}

// reach adds the types that a part of the structure names, and says whether there are new ones.
func reach(in any, needed map[string]bool) (grown bool) {
	switch v := in.(type) {
	case []any:
		for _, each := range v {
			grown = reach(each, needed) || grown
		}
	case map[string]any:
		for key, each := range v {
			name, isName := each.(string)
			if key == "namedType" && isName && !needed[name] {
				needed[name], grown = true, true
			}
			grown = reach(each, needed) || grown
		}
	}
	return grown
}
