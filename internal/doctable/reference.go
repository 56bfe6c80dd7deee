// Package doctable writes tables of docs/configuration.md: tests make them of what
// the programs are.
package doctable

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Flags lists the flags of a program, command by command, in a table each.
func Flags(c *cobra.Command) string {
	var text strings.Builder
	if c.Runnable() && c.HasAvailableLocalFlags() {
		fmt.Fprintf(&text, "`%s`\n\n| flag | type | default | is |\n|---|---|---|---|\n", c.UseLine())
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			kind, usage := pflag.UnquoteUsage(f)
			if kind == "" {
				kind = f.Value.Type()
			}
			fmt.Fprintf(&text, "| `--%s` | %s | %s | %s |\n", f.Name, Cell(kind), Cell(code(f.DefValue)), Cell(usage))
		})
		text.WriteString("\n")
	}
	for _, below := range c.Commands() {
		if below.IsAvailableCommand() && below.Name() != "completion" {
			text.WriteString(Flags(below))
		}
	}
	return text.String()
}

func code(text string) string {
	if text == "" || text == "[]" {
		return ""
	}
	return "`" + text + "`"
}

// Cell keeps text from being read as markup of the table it stands in.
func Cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`, "\n", " ").Replace(text)
}
