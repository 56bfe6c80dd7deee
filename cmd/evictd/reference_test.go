package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/internal/doctable"
	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
)

const configuration = "../../docs/configuration.md"

// facts are what the type of a field does not say; see testdata/fields.yaml.
type facts struct {
	Default, Example any
	Values           string
	Refused          any
	With             map[string]any
}

// fileOf is a configuration file with the field, and what belongs to it.
func fileOf(t *testing.T, name string, value any, with map[string]any) []byte {
	t.Helper()
	all := map[string]any{"apiVersion": config.APIVersion, "kind": config.Kind, name: value}
	maps.Copy(all, with)
	text, err := yaml.Marshal(all)
	require.NoError(t, err)
	return text
}

// take reads a file as evictd run does.
func take(data []byte) (config.EvictdConfiguration, config.Config, error) {
	file, err := config.Load(data)
	if err != nil {
		return file, config.Config{}, err
	}
	compiled, err := daemon.Check(&file)
	return file, compiled, err
}

// TestFactsAboutFieldsHold: an example is taken, a default changes nothing, and what
// is said to be refused is.
func TestFactsAboutFieldsHold(t *testing.T) {
	for name, f := range factsOfFields(t) {
		if _, _, err := take(fileOf(t, name, f.Example, f.With)); err != nil {
			t.Errorf("%s: the example is refused: %v", name, err)
		}
		if f.Refused != nil {
			if _, _, err := take(fileOf(t, name, f.Refused, f.With)); err == nil {
				t.Errorf("%s: %v is taken", name, f.Refused)
			}
		}
		if f.Default == nil {
			continue
		}
		_, with, err := take(fileOf(t, name, f.Default, nil))
		if err != nil {
			t.Errorf("%s: the default is refused: %v", name, err)
		}
		if _, without, _ := take(fileOf(t, "kind", config.Kind, nil)); !reflect.DeepEqual(with, without) {
			t.Errorf("%s: %v is not the default", name, f.Default)
		}
	}
}

func factsOfFields(t *testing.T) map[string]facts {
	t.Helper()
	text := require.ReadFile(t, "testdata/fields.yaml")
	var all map[string]facts
	require.NoError(t, yaml.UnmarshalStrict(text, &all))
	return all
}

// comments are what the sources say of the fields of a package's structs, by name
// of struct and field. A field without a comment shares that of the one before.
func comments(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	require.NoError(t, err)
	said := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		s, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		structure, ok := s.Type.(*ast.StructType)
		if !ok {
			return false
		}
		last := ""
		for _, f := range structure.Fields.List {
			if f.Doc != nil {
				last = strings.Join(strings.Fields(f.Doc.Text()), " ")
			} else if s.Name.Name == "Run" {
				last = "" // the flag says it
			}
			for _, name := range f.Names {
				said[s.Name.Name+"."+name.Name] = last
			}
		}
		return false
	})
	return said
}

// typeName is what a value of the field looks like in YAML.
func typeName(of reflect.Type) string {
	switch {
	case of.Kind() == reflect.Pointer:
		return typeName(of.Elem())
	case of == reflect.TypeFor[metav1.Duration]():
		return "duration"
	case of.Kind() == reflect.Map:
		return "map"
	case of.Kind() == reflect.Slice:
		return "list"
	case of.Kind() == reflect.Int32:
		return "number"
	}
	return of.Kind().String()
}

// inline is a value in one line of YAML, as code; "" for none.
func inline(value any) string {
	if value == nil {
		return ""
	}
	text := fmt.Sprint(value)
	switch value := value.(type) {
	case map[string]any:
		var entries []string
		for _, key := range slices.Sorted(maps.Keys(value)) {
			entries = append(entries, fmt.Sprintf("%s: %v", key, value[key]))
		}
		text = "{" + strings.Join(entries, ", ") + "}"
	case []any:
		text = strings.ReplaceAll(text, " ", ", ")
	}
	return "`" + text + "`"
}

func TestTheReferenceHasEveryField(t *testing.T) {
	said, known := comments(t, "../../eviction/config/types.go"), factsOfFields(t)
	flags := runCommand().Flags()
	var table strings.Builder
	table.WriteString("| field | type | values | default | example | flag | is |\n|---|---|---|---|---|---|---|\n")
	goNames := regexp.MustCompile(`\b[A-Z]\w*[a-z]\w*\b`)
	names := map[string]string{}
	var fields []reflect.StructField
	var structs []string
	for _, of := range []reflect.Type{reflect.TypeFor[config.EvictdConfiguration](), reflect.TypeFor[config.Run]()} {
		for f := range of.Fields() {
			if f.Anonymous || !f.IsExported() {
				continue
			}
			names[f.Name], _, _ = strings.Cut(f.Tag.Get("json"), ",")
			fields, structs = append(fields, f), append(structs, of.Name())
		}
	}
	for i, f := range fields {
		name := names[f.Name]
		about, ok := known[name]
		if !ok {
			t.Errorf("testdata/fields.yaml has no %s", name)
		}
		delete(known, name)
		flag, text := "", said[structs[i]+"."+f.Name]
		for _, candidate := range []string{kebab(name), kebab(f.Name)} {
			if found := flags.Lookup(candidate); found != nil && flag == "" {
				flag = "`--" + candidate + "`"
				if text == "" {
					text = found.Usage
				}
			}
		}
		text = goNames.ReplaceAllStringFunc(text, func(word string) string {
			if field := names[word]; field != "" && word != "Mode" {
				return "`" + field + "`"
			}
			return word
		})
		mark := ""
		if slices.Contains(daemon.Reloadable(), name) {
			mark = " *"
		}
		fmt.Fprintf(&table, "| `%s`%s | %s | %s | %s | %s | %s | %s |\n", name, mark, typeName(f.Type), doctable.Cell(about.Values),
			doctable.Cell(inline(about.Default)), doctable.Cell(inline(about.Example)), flag, doctable.Cell(text))
	}
	for name := range known {
		t.Errorf("testdata/fields.yaml has %s, which is no field", name)
	}
	golden.Section(t, configuration, "evictd fields", table.String())
}

// kebab is the flag of a field.
func kebab(name string) string {
	name = regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(name, "$1-$2")
	name = regexp.MustCompile(`([A-Z]+)([A-Z][a-z])`).ReplaceAllString(name, "$1-$2")
	return strings.ToLower(name)
}

func TestTheReferenceHasEveryFlag(t *testing.T) {
	golden.Section(t, configuration, "evictd flags", doctable.Flags(newCommand()))
}

// TestTheReferenceHasWhatIsReadOfAKubeletConfiguration takes it from the function
// that reads it.
func TestTheReferenceHasWhatIsReadOfAKubeletConfiguration(t *testing.T) {
	parsed, err := parser.ParseFile(token.NewFileSet(), "../../eviction/config/kubelet.go", nil, 0)
	require.NoError(t, err)
	read := map[string]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "k" {
				read[s.Sel.Name] = true
			}
		}
		return true
	})
	var names []string
	for f := range reflect.TypeFor[kubelet.KubeletConfiguration]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); read[f.Name] && !f.Anonymous {
			names = append(names, "`"+name+"`")
		}
	}
	golden.Section(t, configuration, "kubelet", strings.Join(names, ", ")+".\n")
}
