package golden

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

const lines = `# invalid: spec.steps: Required value
{"at":"10s","conditions":{"MemoryPressure":true},"taints":[],"scores":{},"attempt":1,"evictions":[{"pod":"default/a","message":"The node was low on resource: memory. ","annotations":{"b":"1Gi","a":"700"}},{"pod":"default/b"}]}
{"pods":["true","null","","1e3","2026-10-17","- x","#","a\nb\t","<é>"],"nodes":[null,-0,1.50]}
`

const facts = `# invalid: spec.steps: Required value
---
at: 10s
conditions:
  MemoryPressure: true
taints: []
scores: {}
attempt: 1
evictions:
- pod: default/a
  message: 'The node was low on resource: memory. '
  annotations:
    b: 1Gi
    a: "700"
- pod: default/b
---
pods:
- "true"
- "null"
- ""
- "1e3"
- "2026-10-17"
- '- x'
- '#'
- "a\nb\t"
- <é>
nodes:
- null
- -0
- 1.50
`

func TestLinesOfJSONAreReadAFactALine(t *testing.T) {
	got, err := fromLines(lines)
	if err != nil || got != facts {
		t.Errorf("got %v\n%s", err, got)
	}
	back, err := toLines(got)
	if err != nil || back != lines {
		t.Errorf("gives back %v\n%s", err, back)
	}
}

// failed is a test that ends at its first failure.
type failed struct {
	testing.TB
	fatal string
}

func (f *failed) Helper() {}
func (f *failed) Fatalf(format string, args ...any) {
	f.fatal = format
	panic(f)
}

func TestLinesThatFactsCannotGiveBackFailTheTest(t *testing.T) {
	for name, lines := range map[string]string{
		"no JSON":                     "invalid: spec\n",
		"two values":                  "{} {}\n",
		"cut off":                     `{"at":`,
		"without an end of line":      `{"at":"0s"}`,
		"spaces":                      `{"at": "0s"}` + "\n",
		"an escape without need":      `{"at":"\u0030s"}` + "\n",
		"an empty line between lines": "{}\n\n{}\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := &failed{TB: t}
			defer func() {
				if recover() != f || f.fatal == "" {
					t.Errorf("%q passes", lines)
				}
			}()
			Facts(f, t.TempDir()+"/no.golden", []byte(lines))
		})
	}
}

// FuzzFacts takes any line of JSON, in the form the programs would print it.
func FuzzFacts(f *testing.F) {
	for line := range strings.Lines(lines) {
		f.Add(line)
	}
	for _, value := range []string{
		`"~"`, `"yes"`, `"0x10"`, `"1_000"`, `"1:30"`, `".inf"`, `"=" `, `"<<"`, `"!!int"`, `"&a"`, `"*a"`, `"---"`, `"...\n"`, `"? "`, `"%"`, `"@"`, "\"`\"",
		`" "`, `"a "`, `"\n"`, `"\n a"`, `"a: b"`, `"a #b"`, `"\u0000\u007f\u0085\u00a0\u2028\ufeff"`, `"\ud83d\ude00 \ud800"`, "\"\xff\"", `"\r\n"`, `"'\"\\"`,
		`1e400`, `-0.0`, `123456789012345678901234567890`, `0e0`, `true`, `null`, `[]`, `[[],[[1]],{}]`, `{"":{"":""},"null":null,"1":1,"<<":{"a":1},"a":1,"a":2}`,
		`{"` + strings.Repeat("long ", 300) + `":[{"b":[{"c":1}]}]}`, `"` + strings.Repeat("long ", 300) + `"`,
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, line string) {
		node, err := fromJSON(line)
		if err != nil {
			return
		}
		printed := string(appendJSON(nil, node)) + "\n"
		if !reflect.DeepEqual(value(t, printed), value(t, line)) {
			t.Fatalf("%q is printed as %q", line, printed)
		}
		facts, err := fromLines(printed)
		require.NoError(t, err)
		back, err := toLines(facts)
		if err != nil || back != printed {
			t.Fatalf("%q\nbecomes\n%s\nand then %q, %v", printed, facts, back, err)
		}
	})
}

func value(t *testing.T, text string) (value any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&value))
	return value
}
