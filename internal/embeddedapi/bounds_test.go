package embeddedapi_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// TestACostlyRequestIsRefusedBeforeItCosts sends small requests that would take gigabytes or minutes, and measures what the process
// allocates until it has refused them.
func TestACostlyRequestIsRefusedBeforeItCosts(t *testing.T) {
	s := serve(t, "")
	const pods, maps = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"
	large := strings.Repeat("a", 900<<10)
	for path, body := range map[string]string{
		pods: `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		maps: `{"metadata":{"name":"a"},"data":{"a":"` + large + `"}}`,
	} {
		if made := s.call(t, "POST", path, body); made.code != 201 {
			t.Fatalf("create: %d %.300s", made.code, made.body)
		}
	}
	pod := func(spec string) string { return `{"metadata":{"name":"b"},"spec":` + spec + `}` }
	list := func(n int, element func(int) string) string {
		elements := make([]string, n)
		for i := range elements {
			elements[i] = element(i)
		}
		return "[" + strings.Join(elements, ",") + "]"
	}
	empty := func(int) string { return "{}" }
	named := func(i int) string { return fmt.Sprintf(`{"name":"n%d"}`, i) }
	finalizer := func(i int) string { return fmt.Sprintf(`"a/f%d"`, i) }
	operation := func(name string) func(int) string {
		return func(i int) string {
			return fmt.Sprintf(`{"op":%q,"from":"/data","path":"/data/a%d","value":"b"}`, name, i)
		}
	}
	protobuf := func(object []byte) string {
		unknown := kruntime.Unknown{TypeMeta: kruntime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: object}
		text, err := unknown.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return "k8s\x00" + string(text)
	}
	spec := strings.Repeat("\x12\x00", 200_000) // containers
	length := binary.AppendUvarint(nil, uint64(len(spec)))
	exact := v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	exact.Name = "b"
	small, err := exact.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	const quantity = "1e-999999999"
	overhead := "\x82\x02\x15\x0a\x03cpu\x12\x0e\x0a\x0c" + quantity // field 32, an entry of a map
	var aliases strings.Builder
	aliases.WriteString("metadata: {name: b}\ndata:\n  a0: &a0 " + strings.Repeat("x", 1000) + "\n")
	nested := "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
		"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n"
	for i := range 5000 {
		fmt.Fprintf(&aliases, "  b%d: *a0\n", i)
	}
	for name, c := range map[string]struct {
		method, path, contentType, body string
		code                            int
	}{
		"copies of a JSON patch":              {"PATCH", maps + "/a", "application/json-patch+json", list(24, operation("copy")), 422},
		"operations on a large document":      {"PATCH", maps + "/a", "application/json-patch+json", list(5000, operation("add")), 413},
		"values of a strategic merge patch":   {"PATCH", maps + "/a", "application/strategic-merge-patch+json", `{"metadata":{"finalizers":` + list(5000, finalizer) + `}}`, 413},
		"values that are applied":             {"PATCH", maps + "/b?fieldManager=m", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","finalizers":` + list(10_000, finalizer) + `}}`, 413},
		"more tolerations than can be merged": {"POST", pods, "application/json", pod(`{"tolerations":` + list(2001, named) + `}`), 413},
		"objects of a strategic merge patch":  {"PATCH", pods + "/a", "application/strategic-merge-patch+json", `{"spec":{"volumes":` + list(20_000, named) + `}}`, 413},
		"empty containers":                    {"POST", pods, "application/json", pod(`{"containers":` + list(50_000, empty) + `}`), 413},
		"empty containers that are applied":   {"PATCH", pods + "/a?fieldManager=m", "application/apply-patch+yaml", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":` + list(50_000, empty) + `}}`, 413},
		"empty containers as protobuf":        {"POST", pods, "application/vnd.kubernetes.protobuf", protobuf([]byte("\x12" + string(length) + spec)), 413},
		"an exponent of a quantity":           {"POST", pods, "application/json", pod(`{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"` + quantity + `"}}}]}`), 400},
		"an exponent with escapes":            {"POST", pods, "application/json", pod(`{"containers":[{"name":"c","image":"i","reso\u0075rces":{"limits":{"cpu":"1\u0065-999999999"}}}]}`), 400},
		"an exponent that is a number":        {"POST", pods, "application/json", pod(`{"overhead":{"cpu":1e-999999999}}`), 400},
		"an exponent of a patch":              {"PATCH", pods + "/a", "application/merge-patch+json", `{"spec":{"overhead":{"cpu":"` + quantity + `"}}}`, 422},
		"an exponent as protobuf":             {"POST", pods, "application/vnd.kubernetes.protobuf", protobuf([]byte("\x12" + string(rune(len(overhead))) + overhead)), 400},
		"an exponent in YAML":                 {"POST", pods, "application/yaml", "metadata: {name: b}\nspec: {overhead: {cpu: \"" + quantity + "\"}}\n", 400},
		"aliases of a long text":              {"POST", maps, "application/yaml", aliases.String(), 413},
		"aliases of aliases":                  {"POST", maps, "application/yaml", "metadata: {name: b}\ndata: {}\n" + nested, 413},
		"an alias of what contains it":        {"POST", maps, "application/yaml", "metadata: {name: b}\ndata: &a\n  b: *a\n", 413},
		"many values in YAML":                 {"POST", maps, "application/yaml", "metadata: {name: b}\ndata: [" + strings.Repeat("a,", 200_000) + "]\n", 413},
		"a pod as protobuf that costs little": {"POST", pods, "application/vnd.kubernetes.protobuf", protobuf(small), 422},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			answer := s.call(t, c.method, c.path, c.body, "Content-Type", c.contentType)
			runtime.ReadMemStats(&after)
			if answer.code != c.code {
				t.Errorf("%d %.300s", answer.code, answer.body)
			}
			if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 64 {
				t.Errorf("%d KiB of body took %d MiB", len(c.body)>>10, took)
			}
		})
	}
}

// TestLargeRequestsWaitForEachOther begins as many large requests as there may be, and sends others.
func TestLargeRequestsWaitForEachOther(t *testing.T) {
	s := serve(t, "")
	const path, size = "/api/v1/namespaces/default/configmaps", 3 << 20
	body := func(name string, size int) string {
		return `{"metadata":{"name":"` + name + `"},"data":{"a":"` + strings.Repeat("a", size) + `"}}`
	}
	var begun []net.Conn
	for range 8 {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		require.NoError(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, size)
		require.NoError(t, err)
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") { // its room is reserved
			t.Fatalf("%q, %v", line, err)
		}
		begun = append(begun, c)
	}
	if refused := s.call(t, "POST", path, body("large", 100<<10)); refused.code != 429 {
		t.Errorf("one more large request: %d %.300s", refused.code, refused.body)
	}
	if made := s.call(t, "POST", path, body("small", 10<<10)); made.code != 201 {
		t.Errorf("a small request: %d %.300s", made.code, made.body)
	}
	for _, c := range begun {
		require.NoError(t, c.Close())
	}
	wait.Until(t, "a large request to be taken", func() bool { return s.call(t, "POST", path, body("large", 100<<10)).code == 201 })
}
