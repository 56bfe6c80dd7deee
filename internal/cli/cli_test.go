package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/require"
)

// run executes a command line of a program whose one command returns the error fails.
func run(stdin io.Reader, fails error, args ...string) (code int, out, errs string) {
	c := &cobra.Command{Use: "read FILE", Args: cobra.ExactArgs(1)}
	output := cli.OutputFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		data, err := cli.ReadInput(c, args[0])
		if err != nil {
			return err
		}
		if _, err := c.OutOrStdout().Write(append(data, output.String()...)); err != nil {
			return err
		}
		return fails
	}
	var stdout, stderr bytes.Buffer
	root := cli.New("program", "Reads", "v1", c)
	root.SetIn(stdin)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	code = cli.Execute(context.Background(), root, args)
	return code, stdout.String(), stderr.String()
}

func TestTheExitCodeDistinguishesBadInputFromFaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("as "), 0o644))
	ours, theirs := errors.New("broken"), cli.BadInput(errors.New("wrong"))
	for _, c := range []struct {
		args  string
		fails error
		code  int
		out   string
		errs  string
	}{
		{"read " + file, nil, 0, "as text", ""},
		{"read -o json -", nil, 0, "in json", ""},
		{"version", nil, 0, "v1\n", ""},
		{"read " + file, ours, cli.ExitFault, "as text", "program: broken\n"},
		{"read " + file, theirs, cli.ExitBadInput, "as text", "program: wrong\n"},
		{"read " + file, cli.InFile("f", errors.Join(ours, theirs)), cli.ExitBadInput, "as text", "program: f: broken\nprogram: f: wrong\n"},
		{"read " + file, cli.InFile("f", nil), 0, "as text", ""},
		{"read", nil, cli.ExitBadInput, "", "program: accepts 1 arg(s), received 0; expected program read FILE [flags]\n"},
		{"read --flag -", nil, cli.ExitBadInput, "", "program: unknown flag: --flag; program read --help lists the flags\n"},
		{"read " + file + ".none", nil, cli.ExitBadInput, "", "program: open " + file + ".none: no such file or directory\n"},
		{"read -o yaml -", nil, cli.ExitBadInput, "", "program: invalid argument \"yaml\" for \"-o, --output\" flag: expected text|json\n"},
		{"write", nil, cli.ExitBadInput, "", "program: unknown command \"write\" for \"program\"; program --help lists the commands\n"},
	} {
		code, out, errs := run(strings.NewReader("in "), c.fails, strings.Fields(c.args)...)
		if code != c.code || out != c.out || errs != c.errs {
			t.Errorf("%s: exit %d, %q, %q; want exit %d, %q, %q", c.args, code, out, errs, c.code, c.out, c.errs)
		}
	}
}
