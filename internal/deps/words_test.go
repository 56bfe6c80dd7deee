package deps

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// word is an expression that comments, strings and documentation do not use, and what to write instead.
type word struct{ banned, instead string }

// words are matched as whole words, without regard to case. A banned expression is a regular expression.
var words = []word{
	{`nobody|somebody|anybody|everybody`, "name the process, the pod, the caller, the program"},
	{`who|(of|to|for|with) whom|whoever|the one that|the one who|those who`, "name the process, the pod, the caller, the program"},
	{`for (its|their|whose) sake|for want of|in vain|for good|as like as not|ever more`, "say which condition holds: because of, without, without effect, permanently"},
	{`tells?|told|telling|hears?|heard`, "report, receive, send, show, say which file or field has it"},
	{`(comes?|came|coming) to (it|that|nothing|something|rest|an end)|came of|comes of`, "name the result"},
	{`leave to go|(may|might|must|would|could|should|let) go|goes? first|go(es)? next|whatever goes`, "evicted, killed, removed, deleted"},
	{`go(es)? on|going on|went on|goes its way`, "continues, is continued"},
	{`lets? go of|letting go of|gives? up on`, "close, release, stop"},
	{`takes? up|took up|taken up|taking up`, "store, apply, add"},
	{`bears|borne|rests|hurr(y|ies|ied)|blames?|guilty|strangers?|bury|buries|burial|bodies`, "name the operation in words of the kernel or of Kubernetes"},
	{`holds? up|held up|holding up|keeps? waiting`, "blocks, delays"},
	{`anew|yet again|once more`, "again"},
	{`(hands?|handed) over|(takes?|took|taken) away`, "pass, send; remove, delete"},
	{`stands? still|stand in for`, "does not change"},
}

func TestCommentsAndStringsUseTheWordsOfTheField(t *testing.T) {
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if name == "testdata" || len(name) > 2 && name[0] == '.' {
				return fs.SkipDir
			}
			return nil
		}
		read := bannedWords
		switch {
		case name == "words_test.go", name == "behaviour.md": // the table of banned words; made of rules.txt and comments of tests
			return nil
		case strings.HasSuffix(name, ".go"):
		case slices.Contains(prose, filepath.Ext(name)), name == "Makefile":
			read = bannedInText
		default:
			return nil
		}
		below, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		found, err := read(file)
		if err != nil {
			return err
		}
		for _, f := range found {
			t.Errorf("%s:%s", below, f)
		}
		return nil
	})
	require.NoError(t, err)
}

// rules are in testdata, which the walk leaves out.
func TestRulesUseTheWordsOfTheField(t *testing.T) {
	for _, file := range []string{"eviction/simulate/testdata/rules.txt", "scheduleradapter/simulate/testdata/rules.txt"} {
		found, err := bannedInText(filepath.Join("..", "..", file))
		require.NoError(t, err)
		for _, f := range found {
			t.Errorf("%s:%s", file, f)
		}
	}
}

// prose are the endings of files that are read whole: documentation, pages, units,
// scripts and examples.
var prose = []string{".md", ".txt", ".js", ".css", ".html", ".sh", ".yaml", ".conf", ".service", ".socket", ".5"}

// bannedInText lists the banned words in a file, each with its line.
func bannedInText(file string) (found []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for i, pattern := range patterns() {
		for _, at := range pattern.FindAllIndex(text, -1) {
			found = append(found, fmt.Sprintf("%d: %q: %s", 1+bytes.Count(text[:at[0]], []byte("\n")), text[at[0]:at[1]], words[i].instead))
		}
	}
	return found, nil
}

// bannedWords lists the banned words in the comments, string literals and names of
// functions and types of a file, each with the line where it begins. Struct tags and keys of JSON are not
// read: they are fixed by the documents of the status address and of the state directory.
func bannedWords(file string) (found []string, err error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	read := func(pos token.Pos, text string) {
		for i := range words {
			for _, used := range patterns()[i].FindAllString(text, -1) {
				found = append(found, fmt.Sprintf("%d: %q: %s", fset.Position(pos).Line, used, words[i].instead))
			}
		}
	}
	for _, group := range parsed.Comments {
		read(group.Pos(), strings.ReplaceAll(group.Text(), "\n", " "))
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.Field:
			n.Tag = nil
		case *ast.FuncDecl:
			read(n.Pos(), inWords(n.Name))
		case *ast.TypeSpec:
			read(n.Pos(), inWords(n.Name))
		case *ast.BasicLit:
			if n.Kind == token.STRING && n.Value != `"nobody"` { // a Unix user
				read(n.Pos(), jsonKey.ReplaceAllString(n.Value, ""))
			}
		}
		return true
	})
	return found, nil
}

// inWords is a name with a space before each capital letter.
func inWords(name *ast.Ident) string { return capital.ReplaceAllString(name.Name, " $0") }

var capital = regexp.MustCompile(`[A-Z]`)

// jsonKey is a key of an object in a string of JSON.
var jsonKey = regexp.MustCompile(`"\w+":`)

// patterns are the expressions of words.
var patterns = sync.OnceValue(func() (all []*regexp.Regexp) {
	for _, w := range words {
		all = append(all, regexp.MustCompile(`(?i)\b(?:`+w.banned+`)\b`))
	}
	return all
})
