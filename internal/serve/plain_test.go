package serve

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/evictd/evictd/internal/require"
)

func TestWhatDoesNotPrintReachesNoTerminal(t *testing.T) {
	for text, want := range map[string]string{
		"a \"pod\" \\ of <München> 日本 😀": "a \"pod\" \\ of <München> 日本 😀",
		"\x1b]0;mine\a\r\n\tb":           `\u001b]0;mine\u0007\r\n\tb`,
		"\u009b2J\u202e\u2028\x7f":       `\u009b2J\u202e\u2028\u007f`,
		"\U000e0041":                     `\udb40\udc41`,
		`\u001b \n`:                      `\u001b \n`,
		"\xff":                           "\ufffd",
	} {
		document, err := json.Marshal(map[string]string{"name": text})
		require.NoError(t, err)
		var shown, said struct{ Name string }
		if err := Decode(document, &shown); err != nil || shown.Name != want {
			t.Errorf("%q: shown as %q, %v", text, shown.Name, err)
		}
		if err := json.Unmarshal(printable(document), &said); err != nil || said.Name != strings.ToValidUTF8(text, "\ufffd") {
			t.Errorf("%q: passed on as %q, %v", text, said.Name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("a\x1b[2J\u009b", "\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		document, err := json.MarshalIndent([]string{a, b}, "", "\t")
		require.NoError(t, err)
		var shown []string
		if err := Decode(document, &shown); err != nil || len(shown) != 2 {
			t.Fatalf("%q: %v", document, err)
		}
		for _, s := range append(shown, strings.NewReplacer("\n", "", "\t", "").Replace(string(printable(document)))) {
			if i := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) && r != '\ufffd' }); i >= 0 {
				t.Fatalf("%q shows %q", document, s[i:])
			}
		}
	})
}
