// Command evictd-top is the live view of `evictd status --watch`: a terminal that
// shows what a running evictd's status address says. It is a program of its own so
// that the daemon's file does not grow by a terminal library.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/nodestatus/render"
)

// version is stamped by the linker.
var version = "unknown"

func main() { os.Exit(cli.Execute(context.Background(), newCommand(), os.Args[1:])) }

func newCommand() *cobra.Command {
	c := cli.New("evictd-top", "Shows signals, conditions and pods in eviction order, live", version)
	c.Args = cobra.NoArgs
	client := serve.ClientFlags(c.Flags(), "evictd", "unix:/run/evictd/status.sock")
	interval := c.Flags().Duration("interval", time.Second, "between two looks")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *interval < 100*time.Millisecond {
			return cli.BadInput(fmt.Errorf("--interval %s: expected 100ms or more", *interval))
		}
		if err := client.Check(); err != nil {
			return err
		}
		screen, err := tcell.NewScreen()
		if err == nil {
			err = screen.Init()
		}
		if err != nil {
			return fmt.Errorf("take over the terminal, without which `evictd status` shows the same once: %w", err)
		}
		defer screen.Fini()
		return watch(c.Context(), screen, client, *interval)
	}
	return c
}

// look is what one look at the daemon brought.
type look struct {
	status  nodestatus.Status
	explain *nodestatus.Explanation // nil unless asked for
	err     error
}

// watch shows the daemon until the context ends or a key does.
func watch(ctx context.Context, screen tcell.Screen, client *serve.Client, interval time.Duration) error {
	ctx, stop := context.WithCancel(ctx)
	events, looks, asked := make(chan tcell.Event), make(chan look), make(chan string, 1)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() { screen.ChannelEvents(events, ctx.Done()) })
	all.Go(func() { follow(ctx, client, interval, asked, looks) })
	v := newView()
	for {
		v.draw(screen)
		screen.Show()
		select {
		case <-ctx.Done():
			return nil
		case l := <-looks:
			v.take(l)
		case e := <-events:
			switch e := e.(type) {
			case nil:
				return errors.New("the terminal is gone")
			case *tcell.EventResize:
				screen.Sync()
			case *tcell.EventKey:
				ask, quit := v.key(e)
				if quit {
					return nil
				}
				if ask != "" {
					select {
					case asked <- ask:
					default: // one is on its way
					}
				}
			}
		}
	}
}

// follow looks at the daemon at an interval, and when a pod is asked about.
func follow(ctx context.Context, client *serve.Client, interval time.Duration, asked <-chan string, looks chan<- look) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for pod := ""; ; {
		select {
		case looks <- lookAt(ctx, client, pod):
		case <-ctx.Done():
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			pod = ""
		case pod = <-asked:
		}
	}
}

func lookAt(ctx context.Context, client *serve.Client, pod string) (l look) {
	get := func(path string, into any) error {
		body, err := client.Fetch(ctx, path)
		if err == nil {
			err = serve.Decode(body, into)
		}
		return err
	}
	if l.err = get("/v1/status", &l.status); l.err == nil && pod != "" {
		l.explain = &nodestatus.Explanation{}
		l.err = get("/v1/explain?"+url.Values{"pod": {pod}}.Encode(), l.explain)
	}
	return l
}

// explained writes an explanation as lines.
func explained(e *nodestatus.Explanation) []string {
	var text strings.Builder
	if err := render.Explanation(&text, e, true); err != nil {
		return []string{err.Error()}
	}
	return strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
}
