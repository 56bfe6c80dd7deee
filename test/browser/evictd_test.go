package browser_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

// node is a node with a page.
type node struct {
	*harness.Node
	address string // of the page
}

func newNode(t *testing.T) *node {
	t.Helper()
	return &node{harness.NewNode(t, 384*harness.MiB, 200), freeAddress(t)}
}

// evictd protects the node, and serves the page beside its socket.
func (n *node) evictd(flags ...string) *harness.Evictd {
	n.T.Helper()
	return n.Evictd(append([]string{
		sandbox.Mode("native"), sandbox.StatusAddress("unix:" + n.Socket() + "," + n.address),
		sandbox.EvictionHard("memory.available<64Mi"), sandbox.EvictionSoft("memory.available<120Mi"), sandbox.SoftGrace("memory.available=1h"),
		sandbox.Transition("5s"),
	}, flags...)...)
}

// pod runs a pod that holds memory. Its manifest and its cgroup are removed when it
// has ended, as the kubelet does.
func (n *node) pod(name, request string, priority int32, hold string) *harness.Pod {
	n.T.Helper()
	m := n.Manifest(name, sandbox.Spec{Request: request, Priority: priority})
	m.Namespace = "shop"
	p := n.StartIn(m, n.PodGroup(m), nil)
	p.Do("hold %s", hold)
	n.Write(m)
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		<-p.Ended()
		_ = os.Remove(filepath.Join(n.Manifests(), m.Name+".json"))
		_ = n.Cgroups.Delete(p.Group)
	}()
	n.T.Cleanup(func() {
		p.End()
		<-removed
	})
	return p
}

// usage is the memory of a pod as evictd measured it, in bytes.
func usage(s *nodestatus.Status, pod string) int64 {
	for _, r := range s.Ranking["memory.available"] {
		if used, err := resource.ParseQuantity(r.Usage); err == nil && r.Pod == pod {
			return used.Value()
		}
	}
	return 0
}

func evicted(s *nodestatus.Status, pod string) bool {
	return slices.ContainsFunc(s.Evictions, func(e nodestatus.Eviction) bool { return e.Pod == pod })
}

// TestThePageOfEvictd has a pod of a small node leak until it is evicted, with the
// page open.
func TestThePageOfEvictd(t *testing.T) {
	browser := openBrowser(t)
	n := newNode(t)
	leaker := n.pod("leaker", "16Mi", 0, "0")
	n.pod("web", "64Mi", 100, "40Mi")
	n.pod("database", "128Mi", 1000, "80Mi")
	n.pod("batch", "", 10, "10Mi")
	e := n.evictd()

	p := openTab(t, browser, n.address)
	p.scheme("light")
	p.see("the signal with its thresholds", `/memory.available.*hard 64 MiB.*soft 120 MiB/.test(document.querySelector(".tile[aria-pressed=true]")?.textContent)`)
	p.see("the pods in their order", `document.querySelectorAll("#pods tr").length === 4`)
	p.see("a curve", `document.querySelector("#chart .curve")?.getAttribute("d").length > 20`)
	p.see("no more time than there was", `[...document.querySelectorAll("#chart text")].some((t) => /^\d\d:\d\d:\d\d$/.test(t.textContent))`)
	p.click("#window button")
	for mib := int64(10); !evicted(e.Status(), "shop/leaker"); mib += 10 {
		leaker.Send("hold %dMi", mib)
		e.Await(fmt.Sprintf("evictd to measure a leak of %d MiB or to evict the pod", mib), func(s *nodestatus.Status) bool {
			return evicted(s, "shop/leaker") || usage(s, "shop/leaker") >= mib*harness.MiB
		})
	}
	p.see("the eviction as a mark", `document.querySelector("#chart .mark")?.title.includes("leaker")`)
	p.see("its end in the list", `document.querySelector("#evictions").textContent.includes("freed")`)
	p.shoot("light")
	p.click("#chart .mark")
	p.see("its story", `/Why this pod.*Ranking at the decision.*leaker/.test(document.querySelector("dialog")?.textContent)`)
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

	e.Stop()
	p.see("that evictd is away", `document.querySelector("#live").textContent === "reconnecting"`)
	n.evictd(sandbox.NodeName("node-2"))
	p.see("the next evictd", `document.querySelector("#live").textContent === "live" && document.querySelector("#node").textContent === "node-2"`)
	p.forgive("v1/events") // which had no answer meanwhile
}
