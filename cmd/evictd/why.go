package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/eviction/recorder"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/nodestatus/render"
)

func whyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "why POD | --last",
		Short: "Show why a pod was evicted, and which pod would have been next",
		Long: `Show from the flight recorder why a pod was evicted: what was measured, how the
pods were ranked, which pod would have been next, and how the kill ended. POD is
NAMESPACE/NAME, a name or a uid. It asks the running evictd, and reads the state
directory where none runs.

With -o scenario it prints what was recorded around the eviction, for
  evictd simulate --config OTHER FILE
which shows when another configuration would have acted. What was measured after
the recorded eviction is what that left; after the first difference a replay shows
only which pod would have been evicted, and when.`,
		Args: cobra.MaximumNArgs(1),
	}
	output := cli.OutputFlag(c, "text", "json", "scenario")
	last := c.Flags().Bool("last", false, "the last eviction, of any pod")
	client := clientFlags(c)
	stateDir := c.Flags().String("state-dir", "", "read this state directory, and do not ask a running evictd")
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		if a, err := ask(c.Context(), client, *stateDir, "", false); err == nil && len(args) == 0 {
			for i := range a.Stories {
				names = append(names, cobra.CompletionWithDesc(a.Stories[i].Pod, a.Stories[i].Signal))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		pod := strings.Join(args, "")
		if (pod == "") != *last {
			return cli.BadInput(errors.New("expected either POD or --last"))
		}
		a, err := ask(c.Context(), client, *stateDir, pod, *last)
		if err != nil {
			return err
		}
		if len(a.Stories) == 0 && len(a.Steps) > 0 && output.String() == "text" {
			fmt.Fprintf(c.OutOrStdout(), "%s was not evicted\n", a.Steps[0].Pod)
			showSteps(c.OutOrStdout(), a.Steps, func(t time.Time) string { return t.Format(time.RFC3339) })
			return nil
		}
		if len(a.Stories) == 0 {
			return fmt.Errorf("the flight recorder knows of no eviction%s", map[bool]string{true: "", false: " of " + pod}[*last])
		}
		return writeStories(c.OutOrStdout(), &a, output.String())
	}
	return c
}

// writeStories writes stories in a format, as text by default.
func writeStories(out io.Writer, a *daemon.Stories, format string) error {
	switch format {
	case "json":
		return serve.Encode(out, a.Stories)
	case "scenario":
		text, err := yaml.Marshal(a.Scenario)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	shown, err := json.Marshal(a.Stories)
	if err == nil {
		err = serve.Decode(shown, &a.Stories)
	}
	for i := 0; err == nil && i < len(a.Stories); i++ {
		err = writeStory(out, &a.Stories[i])
	}
	return err
}

// ask asks the running daemon, and the disk where there is none or a directory is
// named.
func ask(ctx context.Context, client *serve.Client, stateDir, pod string, last bool) (daemon.Stories, error) {
	if stateDir != "" {
		return daemon.ReadStories(daemon.FlightDir(stateDir), pod, last)
	}
	query := url.Values{"pod": {pod}, "last": {fmt.Sprint(last)}}
	body, err := client.Fetch(ctx, "/v1/why?"+query.Encode())
	if err != nil {
		a, onDisk := daemon.ReadStories(daemon.FlightDir(""), pod, last)
		if onDisk == nil && len(a.Stories)+len(a.Steps) > 0 {
			return a, nil
		}
		return a, err
	}
	var a daemon.Stories
	if err := json.Unmarshal(body, &a); err != nil {
		return a, fmt.Errorf("read stories: %w", err)
	}
	return a, nil
}

// showSteps writes steps before evictions, each with its time in words.
func showSteps(out io.Writer, steps []recorder.Taken, at func(time.Time) string) {
	for i := range steps {
		fmt.Fprintf(out, "  %s\t%s\n", at(steps[i].At.Time), steps[i].Text())
	}
}

// writeStory writes a story for people.
func writeStory(out io.Writer, s *recorder.Story) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	verb := "was evicted"
	if s.DryRun {
		verb = "would have been evicted"
	}
	fmt.Fprintf(w, "%s %s at %s for %s (%s)", s.Pod, verb, s.Decided.Format(time.RFC3339), s.Signal, s.Kind)
	if s.Required != "" {
		fmt.Fprint(w, ": ", render.Compared(s.Signal, s.Available, s.Required))
	}
	fmt.Fprintf(w, "\n  why this pod\t%s\n", s.Because)
	fmt.Fprintf(w, "  next would have been\t%s\n", cmp.Or(s.Next, "no pod"))
	fmt.Fprintf(w, "  seen by\t%s, decided %v after the crossing\n", s.Source, s.Decided.Sub(s.Crossed.Time).Round(time.Microsecond))
	if !s.Signalled.IsZero() {
		fmt.Fprintf(w, "  first signal\t%v after the decision, grace %s\n", s.Signalled.Sub(s.Decided.Time).Round(time.Microsecond), s.Grace)
	}
	if !s.Killed.IsZero() {
		fmt.Fprintf(w, "  SIGKILL\t%v after the first signal\n", s.Killed.Sub(s.Signalled.Time).Round(time.Microsecond))
	}
	switch {
	case s.DryRun:
	case s.Error != "":
		fmt.Fprintf(w, "  end\t%s\n", s.Error)
	case s.Gone.IsZero():
		fmt.Fprintf(w, "  end\tnot seen\n")
	default:
		fmt.Fprintf(w, "  gone\t%v after the crossing, %s\n", s.Gone.Sub(s.Crossed.Time).Round(time.Millisecond), render.Gain(s.Signal, s.Freed, s.Held))
	}
	showSteps(w, s.Steps, func(t time.Time) string { return s.Decided.Sub(t).Round(time.Millisecond).String() + " before" })
	fmt.Fprintf(w, "  message\t%s\n", strings.TrimSpace(s.Message))
	if len(s.Ranking) > 0 {
		fmt.Fprintln(w)
		render.Ranking(w, s.Signal, s.Ranking)
	}
	fmt.Fprintln(w)
	return w.Flush()
}
