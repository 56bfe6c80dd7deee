package browser_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/test/harness"
)

// tab is an open page, and what was wrong with it.
type tab struct {
	*testing.T
	ctx     context.Context
	address string

	mu     sync.Mutex
	faults []string
}

// openBrowser starts a browser of the test's own.
func openBrowser(t *testing.T) context.Context {
	t.Helper()
	program := harness.Need(t, "chromium", "chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true), chromedp.WSURLReadTimeout(wait.Limit))
	allocator, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	late := time.AfterFunc(wait.Limit, end)
	defer late.Stop()
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	return ctx
}

// openTab opens a page in a tab of its own, 1280 pixels wide, and fails the test for
// whatever the console says, for violations of the policy and for requests to
// elsewhere.
func openTab(t *testing.T, browser context.Context, address string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	p := &tab{T: t, ctx: ctx, address: "http://" + address + "/"}
	require.NoError(t, chromedp.Listen(ctx, p.listen))
	t.Cleanup(func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, fault := range p.faults {
			t.Error(fault)
		}
	})
	p.do(command(log.Enable, cdp.Empty{}), command(runtime.Enable, cdp.Empty{}), command(network.Enable, network.EnableParams{}))
	p.size(1280, 900)
	p.do(chromedp.Navigate(p.address))
	return p
}

func (p *tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fault := func(format string, args ...any) { p.faults = append(p.faults, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		fault("exception: %s %s", e.ExceptionDetails.Text, e.ExceptionDetails.Exception.Description)
	case *runtime.EventConsoleAPICalled:
		fault("console: %s %v", e.Type, e.Args)
	case *log.EventEntryAdded:
		fault("log: %s %s", e.Entry.Text, e.Entry.URL)
	case *network.EventRequestWillBeSent:
		at, err := url.Parse(e.Request.URL)
		if err != nil || !strings.HasPrefix(e.Request.URL, p.address) && at.Scheme != "data" {
			fault("a request to %s", e.Request.URL)
		}
	}
}

// forgive forgets faults that name something which the test brought about.
func (p *tab) forgive(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var kept []string
	for _, fault := range p.faults {
		if !strings.Contains(fault, what) {
			kept = append(kept, fault)
		}
	}
	p.faults = kept
}

// command is an action that sends one.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, wait.Limit)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.shoot("failed")
		p.Fatal(err)
	}
}

// text evaluates an expression of JavaScript.
func (p *tab) text(expression string) string {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, wait.Limit)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return text
}

// see waits until an expression of JavaScript is true.
func (p *tab) see(what, expression string) {
	p.Helper()
	defer func() {
		if p.Failed() {
			p.shoot("failed")
		}
	}()
	wait.Until(p.T, what, func() bool { return p.text("Boolean("+expression+")") == "true" })
}

func (p *tab) size(width, height int64) {
	p.Helper()
	p.do(chromedp.EmulateViewport(width, height))
}

// scheme has the system prefer light or dark, and nothing that moves.
func (p *tab) scheme(name string) {
	p.Helper()
	p.do(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}))
}

// click clicks the first element of a selector as a person does, once it is to be
// seen.
func (p *tab) click(selector string) {
	p.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

// shoot keeps a picture of the whole page, or of a dialog and what is behind it.
func (p *tab) shoot(name string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, wait.Limit)
	defer cancel()
	take := chromedp.FullScreenshot(100)
	p.text("scrollTo(0, 0)")
	if p.text("document.querySelector('dialog') !== null") == "true" {
		take = chromedp.CaptureScreenshot()
	}
	picture, err := chromedp.Run(ctx, take)
	if err != nil {
		p.Log("no screenshot:", err)
		return
	}
	path := filepath.Join(p.ArtifactDir(), name+".png")
	if err := os.WriteFile(path, picture, 0o644); err != nil {
		p.Error(err)
	}
}

// narrow checks that a phone shows the page without scrolling sideways.
func (p *tab) narrow() {
	p.Helper()
	p.size(390, 844)
	p.see("the page to be as wide as a phone", "innerWidth === 390")
	if width := p.text("document.documentElement.scrollWidth"); width != "390" {
		p.Errorf("on a phone of 390 pixels the page is %s wide", width)
	}
}
