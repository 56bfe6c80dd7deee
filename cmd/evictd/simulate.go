package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/serve"
)

func simulateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "simulate FILE...",
		Short: "Run the decision core over scenarios",
		Long: `Run the decision core over scenarios written in text, and print what each pass
would do. FILE - reads standard input. Nothing is printed if any file is invalid.`,
		Args: cobra.MinimumNArgs(1),
	}
	output := cli.OutputFlag(c, "text", "json")
	other := c.Flags().String("config", "", "play under this EvictdConfiguration or KubeletConfiguration, not under the scenario's own")
	c.RunE = func(c *cobra.Command, files []string) error {
		var out bytes.Buffer
		var faults []error
		var under *config.EvictdConfiguration
		if *other != "" {
			data, err := cli.ReadInput(c, *other)
			if err != nil {
				return err
			}
			loaded, err := config.Load(data)
			if err != nil {
				return cli.InFile(*other, err)
			}
			under = &loaded
		}
		progress := cli.NewProgress(c.ErrOrStderr(), len(files) > 1 && cli.Terminal(c.ErrOrStderr()), "scenarios")
		defer progress.End()
		for i, name := range files {
			progress.Set(i, len(files))
			scenario, err := loadScenario(c, name, under)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			if output.String() == "text" {
				for _, warning := range scenario.Warnings {
					progress.Printf("evictd: %s: warning: %s", name, warning)
				}
			}
			if err := play(&out, scenario, output.String(), len(files) > 1); err != nil {
				return err
			}
		}
		if len(faults) > 0 {
			return errors.Join(faults...)
		}
		progress.End()
		_, err := out.WriteTo(c.OutOrStdout())
		return err
	}
	return c
}

func loadScenario(c *cobra.Command, name string, under *config.EvictdConfiguration) (*simulate.Scenario, error) {
	data, err := cli.ReadInput(c, name)
	if err != nil {
		return nil, err
	}
	scenario, err := simulate.ParseUnder(data, under)
	if err != nil {
		return nil, cli.InFile(name, err)
	}
	return scenario, nil
}

// play appends a scenario's steps, under its name where several are played.
func play(out *bytes.Buffer, scenario *simulate.Scenario, format string, titled bool) error {
	if titled && format == "json" {
		if err := serve.Encode(out, map[string]string{"scenario": scenario.Name}); err != nil {
			return err
		}
	} else if titled {
		fmt.Fprintf(out, "%s\n", scenario.Name)
	}
	steps := scenario.Run()
	for i, first := 0, 0; i < len(steps); i, first = i+1, i+1 {
		if format == "json" {
			if err := serve.Encode(out, &steps[i]); err != nil {
				return err
			}
			continue
		}
		for steps[first].Quiet() && i+1 < len(steps) && steps[i+1].Quiet() {
			i++
		}
		if i > first {
			fmt.Fprintf(out, "%-8s  no change until %s\n", steps[first].At, steps[i].At)
		} else {
			out.WriteString(steps[i].Text())
		}
	}
	return nil
}
