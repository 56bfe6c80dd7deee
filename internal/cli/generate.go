//go:build docs

package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// generators makes a program write its manual pages and completions, below
// DIR/man/man8 and where each shell looks below share. Programs that are
// installed are built without this tag.
func generators() []*cobra.Command {
	return []*cobra.Command{{
		Use:    "generate DIR",
		Short:  "Write manual pages and shell completions",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			root, share := c.Root(), args[0]
			name := root.Name()
			for file, write := range map[string]func(string) error{
				"bash-completion/completions/" + name:         func(f string) error { return root.GenBashCompletionFileV2(f, true) },
				"zsh/vendor-completions/_" + name:             root.GenZshCompletionFile,
				"fish/vendor_completions.d/" + name + ".fish": func(f string) error { return root.GenFishCompletionFile(f, true) },
				"man/man8": func(dir string) error { return writePages(root, dir) },
			} {
				path := filepath.Join(share, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					return err
				}
				if err := write(path); err != nil {
					return err
				}
			}
			return nil
		},
	}}
}

func writePages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root.DisableAutoGenTag = true
	root.CompletionOptions.HiddenDefaultCmd = true
	prepare(root)
	return doc.GenManTree(root, &doc.GenManHeader{Section: "8", Source: root.Name(), Manual: "System administration"}, dir)
}

// prepare keeps what flags say of themselves from being read as markup.
func prepare(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "<", `\<`) })
	for _, below := range c.Commands() {
		prepare(below)
	}
}
