package browser_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/runtest"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// node is a bounded cgroup that stands for one.
type node struct {
	*testing.T
	cgroups *cgroup.System
	group   string
	dir     string // of evictd's files
	address string
	pods    int
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: cgroups are made by root")
	}
	cgroups, err := cgroup.Discover("")
	if err != nil {
		t.Skip("skipped: no cgroups to use:", err)
	}
	n := &node{T: t, cgroups: cgroups, group: runtest.Group("browser"), dir: t.TempDir(), address: freeAddress(t)}
	if err := cgroups.Create(n.group, cgroup.Limits{Memory: stats.Known(384 << 20), PIDs: stats.Known(200)}); err != nil {
		_ = cgroups.Delete(n.group)
		t.Skip("skipped: cgroups with limits of memory and pids cannot be made:", err)
	}
	t.Cleanup(func() { await(t, "the cgroup to be removed", func() bool { return cgroups.Delete(n.group) == nil }) })
	if err := os.Mkdir(n.manifests(), 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) manifests() string { return filepath.Join(n.dir, "pods") }

// evictd protects the node, and serves the page on a port beside its socket.
func (n *node) evictd(args ...string) (stop func()) {
	n.Helper()
	return serve(n.T, "evictd", append([]string{"run", "--node-name=node-1", "--mode=native", "--force", "--cgroup-root=" + n.group, "--cri-endpoint=none", "--nodefs=" + n.dir,
		"--state-dir=" + filepath.Join(n.dir, "state"), "--runtime-dir=" + filepath.Join(n.dir, "run"), "--pod-manifests=" + n.manifests(),
		"--status-address=unix:" + filepath.Join(n.dir, "sock") + "," + n.address, "--housekeeping-interval=100ms",
		"--eviction-hard=memory.available<64Mi", "--eviction-soft=memory.available<120Mi", "--eviction-soft-grace-period=memory.available=1h",
		"--eviction-pressure-transition-period=5s"}, args...)...)
}

// pod runs one, and returns how it is told what to hold.
func (n *node) pod(name, request string, priority int32) (hold func(mib int)) {
	n.Helper()
	n.pods++
	m := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n.pods))},
		Spec:       v1.PodSpec{Priority: &priority, Containers: []v1.Container{{Name: "main"}}},
	}
	if request != "" {
		m.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(request)}
	}
	container := filepath.Join(cgroup.PodsAt(filepath.Join(n.group, "kubepods")).Pod(string(m.UID), eviction.QOSClass(m)), "main")
	process := exec.Command("/proc/self/exe")
	process.Env = append(os.Environ(), podVariable+"=1")
	orders, err := process.StdinPipe()
	if err == nil {
		err = errors.Join(n.cgroups.Create(container, cgroup.Limits{}), process.Start())
	}
	if err != nil {
		n.Fatal(err)
	}
	manifest, ended := filepath.Join(n.manifests(), name+".json"), make(chan struct{})
	text, err := json.Marshal(m)
	if err := errors.Join(err, n.cgroups.Add(container, process.Process.Pid), os.WriteFile(manifest, text, 0o644)); err != nil {
		n.Fatal(err)
	}
	go func() { // as whoever runs pods does
		defer close(ended)
		_ = process.Wait() // an evicted one was killed
		_, _ = os.Remove(manifest), n.cgroups.Delete(filepath.Dir(container))
	}()
	n.Cleanup(func() {
		orders.Close()
		<-ended
	})
	return func(mib int) { _, _ = io.WriteString(orders, fmt.Sprintln(mib)) }
}

// status is evictd's document.
func (n *node) status() (s nodestatus.Status) {
	n.Helper()
	client := runtest.ClientOf(filepath.Join(n.dir, "sock"))
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://evictd/v1/status")
	if err == nil {
		err = json.NewDecoder(answer.Body).Decode(&s)
		answer.Body.Close()
	}
	if err != nil {
		n.Fatal(err)
	}
	return s
}

// usage is the memory that evictd knows a pod to use, in bytes.
func (n *node) usage(pod string) int64 {
	n.Helper()
	for _, r := range n.status().Ranking["memory.available"] {
		if used, err := resource.ParseQuantity(r.Usage); err == nil && r.Pod == pod {
			return used.Value()
		}
	}
	return 0
}

func (n *node) evicted(pod string) bool {
	n.Helper()
	return slices.ContainsFunc(n.status().Evictions, func(e nodestatus.Eviction) bool { return e.Pod == pod })
}

// TestThePageOfEvictd has a pod of a small node leak until it is evicted, with the
// page open.
func TestThePageOfEvictd(t *testing.T) {
	browser := openBrowser(t)
	n := newNode(t)
	leak := n.pod("leaker", "16Mi", 0)
	n.pod("web", "64Mi", 100)(40)
	n.pod("database", "128Mi", 1000)(80)
	n.pod("batch", "", 10)(10)
	stop := n.evictd()
	await(t, "evictd to answer", func() bool { return answers(n.address) })

	p := openTab(t, browser, n.address)
	p.scheme("light")
	p.see("the signal with its thresholds", `/memory.available.*hard 64 MiB.*soft 120 MiB/.test(document.querySelector(".tile[aria-pressed=true]")?.textContent)`)
	p.see("the pods in their order", `document.querySelectorAll("#pods tr").length === 4`)
	p.see("a curve", `document.querySelector("#chart .curve")?.getAttribute("d").length > 20`)
	p.see("no more time than there was", `[...document.querySelectorAll("#chart text")].some((t) => /^\d\d:\d\d:\d\d$/.test(t.textContent))`)
	p.click("#window button")
	for mib := 10; !n.evicted("shop/leaker"); mib += 10 {
		leak(mib)
		await(t, fmt.Sprintf("evictd to see the leak of %d MiB or to end it", mib), func() bool {
			return n.evicted("shop/leaker") || n.usage("shop/leaker") >= int64(mib)<<20
		})
	}
	p.see("the eviction as a mark", `document.querySelector("#chart .mark")?.title.includes("leaker")`)
	p.see("its end in the list", `document.querySelector("#evictions").textContent.includes("freed")`)
	p.shoot("light")
	p.click("#chart .mark")
	p.see("its story", `/Why this pod.*The order as it was.*leaker/.test(document.querySelector("dialog")?.textContent)`)
	p.shoot("story")
	p.click("dialog .icon")
	p.see("the dialog gone", `!document.querySelector("dialog")`)
	p.click("#pods .link")
	p.see("the explanation of a pod", `document.querySelector("dialog")?.textContent.includes("Compared with")`)
	p.shoot("explanation")
	p.click("dialog .icon")

	p.scheme("dark")
	p.see("the dark scheme", `getComputedStyle(document.body).backgroundColor === "rgb(11, 12, 15)"`)
	p.shoot("dark")
	p.click("#theme")
	p.see("the light one, as was asked for", `getComputedStyle(document.body).backgroundColor === "rgb(246, 247, 249)"`)
	p.do(chromedp.Reload())
	p.see("that it is remembered", `getComputedStyle(document.body).backgroundColor === "rgb(246, 247, 249)" && document.querySelector("#chart .mark")`)
	p.narrow()
	p.shoot("phone")

	stop()
	p.see("that evictd is away", `document.querySelector("#live").textContent === "reconnecting"`)
	n.evictd("--node-name=node-2")
	p.see("the next evictd", `document.querySelector("#live").textContent === "live" && document.querySelector("#node").textContent === "node-2"`)
	p.forgive("v1/events") // that nobody answered meanwhile
}
