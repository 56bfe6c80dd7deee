package deps

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// root is the directory of the repository.
var root = filepath.Join("..", "..")

var (
	namedFile  = regexp.MustCompile("`([\\w/.-]+\\.go)`")
	inBrackets = regexp.MustCompile("\\((`\\w+`(?:, `\\w+`)*)\\)")
	namedTest  = regexp.MustCompile("`(Test\\w+)`")
)

// TestTheWalksOfTheArchitectureAreThoseOfTheCode has each file once, and the functions
// behind it are its own.
func TestTheWalksOfTheArchitectureAreThoseOfTheCode(t *testing.T) {
	_, walks, _ := strings.Cut(read(t, "docs/architecture.md"), "## Two walks through the code")
	walks, _, _ = strings.Cut(walks, "\n## ")
	var visited []string
	files := namedFile.FindAllStringSubmatchIndex(walks, -1)
	for i, at := range files {
		file, rest := walks[at[2]:at[3]], walks[at[1]:]
		if i+1 < len(files) {
			rest = walks[at[1]:files[i+1][0]]
		}
		if slices.Contains(visited, file) {
			t.Errorf("%s is visited twice", file)
		}
		visited = append(visited, file)
		text := read(t, file)
		for _, functions := range inBrackets.FindAllStringSubmatch(rest, -1) {
			for name := range strings.SplitSeq(strings.ReplaceAll(functions[1], "`", ""), ", ") {
				if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name + `[\[(]`).MatchString(text) {
					t.Errorf("%s has no function %s", file, name)
				}
			}
		}
	}
	if len(visited) < 20 {
		t.Errorf("the walks visit %q", visited)
	}
}

// TestEveryRecipeIsShownByTests has a recipe name its tests, which exist, and files that exist.
func TestEveryRecipeIsShownByTests(t *testing.T) {
	_, recipes, _ := strings.Cut(read(t, "docs/CONTRIBUTING.md"), "## Recipes")
	recipes, _, _ = strings.Cut(recipes, "\n## ")
	tests := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(file string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(file, "_test.go") {
			for _, declared := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(require.ReadFile(t, file)), -1) {
				tests[declared[1]] = true
			}
		}
		return err
	}))
	for _, file := range namedFile.FindAllStringSubmatch(recipes, -1) {
		read(t, file[1])
	}
	titles := regexp.MustCompile(`(?m)^\*\*.+?\.\*\*`)
	all := titles.Split(recipes, -1)[1:]
	if len(all) != 5 {
		t.Errorf("%d recipes, want 5", len(all))
	}
	for _, recipe := range all {
		named := namedTest.FindAllStringSubmatch(recipe, -1)
		if len(named) == 0 {
			t.Errorf("no test shows the recipe:%s", recipe)
		}
		for _, test := range named {
			if !tests[test[1]] {
				t.Errorf("there is no test %s", test[1])
			}
		}
	}
}

// read is the text of a file of this repository.
func read(t *testing.T, file string) string {
	t.Helper()
	return string(require.ReadFile(t, filepath.Join(root, file)))
}
