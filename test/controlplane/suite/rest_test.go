package suite_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/controlplane/apiserver"
)

// request is one of a scenario under testdata/rest, sent as it stands there.
type request struct {
	Do      string            `json:"do"`
	Request string            `json:"request"` // METHOD PATH
	As      string            `json:"as"`      // content type, application/json where empty
	Accept  string            `json:"accept"`
	Body    json.RawMessage   `json:"body"`
	Raw     string            `json:"raw"`  // a body that is no JSON
	Keep    map[string]string `json:"keep"` // {name} in later requests is that field of the answer
	// Awaits is the status code that the answer has once kube-apiserver's admission has
	// seen the objects of earlier requests: the request is sent until then. 0 is any.
	Awaits int `json:"awaits"`
}

// answer is what golden files hold: the documents of a body, under a line that
// says to what they are the answer.
type answer struct {
	do   string
	code int
	docs []any
}

var patches = map[string]string{
	"":          "application/json",
	"strategic": "application/strategic-merge-patch+json",
	"merge":     "application/merge-patch+json",
	"json":      "application/json-patch+json",
}

// differences are answers of the embedded API that are not kube-apiserver's, and
// why no program needs what is missing.
var differences = map[string]string{
	"limits are requests where there are none, and make a pod burstable": "it has PodTolerationRestriction: only BestEffort pods stay away from a node short of memory",
	"a patch with another uid":                       precondition,
	"an eviction that meets another pod of the name": precondition,
	"evict under another uid":                        "it looks at the precondition before the budget",
	"the next one has to wait":                       "its budgets are up to date at any time",
	"it goes at once":                                atOnce,
	"it goes":                                        atOnce,
	"a pod that failed goes at once":                 atOnce,
	"the node says that it is gone":                  atOnce,
	"it waits for its finalizer":                     atOnce,
	"the whole story":                                atOnce,
	"as the node sees it":                            atOnce,
	"a group that is not there":                      "the refusal is a Status, not a text",
	"only metadata":                                  "clients that ask for metadata alone also take the whole object",
}

const (
	precondition = "a uid that is another's is a conflict, as it is for a deletion"
	atOnce       = "a deletion without grace is one change, not two"
)

// TestRESTAsAKubeAPIServerAnswers sends the requests of every scenario, in
// order, to both servers. The golden files are what kube-apiserver says.
func TestRESTAsAKubeAPIServerAnswers(t *testing.T) {
	files, err := filepath.Glob("testdata/rest/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			each(t, func(t *testing.T, a *api) {
				text := require.ReadFile(t, file)
				var requests []request
				if err := yaml.UnmarshalStrict(text, &requests); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				checkGolden(t, a.Name, strings.TrimSuffix(file, ".yaml")+".golden", a.send(requests))
			})
		})
	}
}

// divider begins an answer in a golden file.
const divider = "\n### "

// checkGolden holds answers to the file, which EVICTD_REWRITE=1 makes from those
// of kube-apiserver.
func checkGolden(t *testing.T, server, file string, answers []answer) {
	t.Helper()
	var text bytes.Buffer
	for _, a := range answers {
		fmt.Fprintf(&text, "%s%s: %d\n", divider, a.do, a.code)
		for _, doc := range a.docs {
			out, err := yaml.Marshal(doc)
			require.NoError(t, err)
			fmt.Fprintf(&text, "---\n%s", out)
		}
	}
	if os.Getenv("EVICTD_REWRITE") == "1" && server == "kube-apiserver" {
		require.NoError(t, os.WriteFile(file, text.Bytes(), 0o644))
		return
	}
	golden := require.ReadFile(t, file)
	want, got := strings.Split(string(golden), divider), strings.Split(text.String(), divider)
	if len(got) != len(want) {
		t.Fatalf("%d answers, %s has %d", len(got)-1, file, len(want)-1)
	}
	for i := range want {
		do, _, _ := strings.Cut(want[i], ": ")
		same := got[i] == want[i] || server == "embedded" && meaning(got[i]) == meaning(want[i])
		switch known := server == "embedded" && differences[do] != ""; {
		case same && known:
			t.Errorf("%q is answered as kube-apiserver does: it is no difference any more", do)
		case !same && !known:
			t.Errorf("got:\n%s\nwant, as %s has it:\n%s", got[i], file, want[i])
		}
	}
}

// meaning is what a program reads of a refusal: the code and the reason. The
// texts are each server's own, but that of a budget, which people read.
func meaning(answer string) string {
	line, body, _ := strings.Cut(answer, "\n")
	if !strings.Contains(line, ": 4") || strings.HasSuffix(line, ": 429") {
		return answer
	}
	var status metav1.Status
	_ = yaml.Unmarshal([]byte(strings.TrimPrefix(body, "---\n")), &status) // or a text, which means no more than the code
	return fmt.Sprint(line, status.Reason)
}

// send sends the requests and returns what came back, with what differs from
// run to run made the same.
func (a *api) send(requests []request) []answer {
	a.t.Helper()
	config, err := a.Config(apiserver.Admin)
	require.NoError(a.t, err)
	client, err := rest.HTTPClientFor(config)
	require.NoError(a.t, err)
	defer client.CloseIdleConnections()
	kept := map[string]string{}
	answers := make([]answer, 0, len(requests))
	for _, r := range requests {
		var code int
		var docs []any
		await(a.t, r.Do, func() bool {
			code, docs, err = r.send(client, config.Host, kept)
			return err != nil || r.Awaits == 0 || code == r.Awaits
		})
		if err != nil {
			a.t.Fatalf("%s: %v", r.Do, err)
		}
		for name, path := range r.Keep {
			value, found := field(docs, path)
			if !found {
				a.t.Fatalf("%s: the answer has no %s: %v", r.Do, path, docs)
			}
			kept[name] = value
		}
		for i := range docs {
			docs[i] = settle(docs[i])
		}
		answers = append(answers, answer{r.Do, code, docs})
	}
	return answers
}

// send returns the status code and the documents of the answer: one, or as many
// as a watch saw.
func (r *request) send(client *http.Client, host string, kept map[string]string) (int, []any, error) {
	fill := func(text string) string {
		for name, value := range kept {
			text = strings.ReplaceAll(text, "{"+name+"}", value)
		}
		return text
	}
	method, path, found := strings.Cut(r.Request, " ")
	if !found {
		return 0, nil, fmt.Errorf("request %q: expected METHOD PATH", r.Request)
	}
	body := r.Raw
	if len(r.Body) > 0 {
		body = fill(string(r.Body))
	}
	ask, err := http.NewRequest(method, host+fill(path), strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	as, found := patches[r.As]
	if !found {
		as = r.As
	}
	ask.Header.Set("Content-Type", as)
	ask.Header.Set("Accept", r.Accept)
	if r.Accept == "" {
		ask.Header.Set("Accept", "application/json")
	}
	response, err := client.Do(ask)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err
	}
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		return response.StatusCode, []any{string(text)}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	var docs []any
	for {
		var doc any
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return response.StatusCode, docs, nil
		}
		if err != nil {
			return 0, nil, fmt.Errorf("answer %d: %w", response.StatusCode, err)
		}
		docs = append(docs, doc)
	}
}

// field is a string field of the last document, its path joined by dots.
func field(docs []any, path string) (string, bool) {
	var value any
	if len(docs) > 0 {
		value = docs[len(docs)-1]
	}
	for name := range strings.SplitSeq(path, ".") {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	text, isText := value.(string)
	return text, isText
}

var (
	uid     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	version = regexp.MustCompile(`(?:\d+ )?\(\d+\)`)
	age     = regexp.MustCompile(`^(\d+[smh])+$`)
)

// unread are fields that the embedded API does not fill in: the history of fields and the
// explanation of a table's columns.
var unread = []string{"managedFields", "description"}

// settle makes the same what differs from run to run, and leaves out what is
// unread.
func settle(value any) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = settle(value[i])
		}
	case map[string]any:
		for _, name := range unread {
			delete(value, name)
		}
		if kind, _ := value["kind"].(string); strings.HasSuffix(kind, "List") {
			for _, item := range value["items"].([]any) {
				delete(item.(map[string]any), "apiVersion")
				delete(item.(map[string]any), "kind")
			}
		}
		if status, has := value["status"].(map[string]any); has && value["kind"] == "PodDisruptionBudget" {
			delete(status, "conditions") // the embedded API computes them beside the requests
		}
		if value["kind"] == "ResourceQuota" {
			delete(value, "status") // too
		}
		for name := range value {
			value[name] = settle(value[name])
		}
		if value["resourceVersion"] != nil {
			value["resourceVersion"] = "(version)"
		}
		if prefix, isText := value["generateName"].(string); isText && value["name"] != nil {
			value["name"] = prefix + "(random)"
		}
	case string:
		if at, err := time.Parse(time.RFC3339, value); err == nil && time.Since(at).Abs() < time.Hour {
			return "(now)"
		}
		if age.MatchString(value) {
			return "(age)"
		}
		return version.ReplaceAllString(uid.ReplaceAllString(value, "(uid)"), "(version)")
	}
	return value
}
