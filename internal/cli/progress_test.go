package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/require"
)

func TestABarStaysBelowTheLinesOfATerminalAndIsRemoved(t *testing.T) {
	const gone = "\r\x1b[K"
	for draw, want := range map[bool]string{
		false: "begins\n1 of 4\n",
		true: "begins\n" + gone + "[--------------------------------] 0/4 done" + gone + "1 of 4\n[--------------------------------] 0/4 done" +
			gone + "[########------------------------] 1/4 done" + gone,
	} {
		var out strings.Builder
		p := cli.NewProgress(&out, draw, "done")
		p.Printf("begins")
		p.Set(0, 0)
		p.Set(0, 4)
		p.Printf("%d of %d", 1, 4)
		p.Set(1, 4)
		p.Set(1, 4)
		p.End()
		p.End()
		if out.String() != want {
			t.Errorf("drawn %t: %q, want %q", draw, out.String(), want)
		}
	}
}

func TestOnlyATerminalThatIsNotDumbIsDrawnOn(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer file.Close()
	if cli.Terminal(file) || cli.Terminal(&strings.Builder{}) {
		t.Error("a file or a buffer is taken for a terminal")
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("skipped: needs /dev/ptmx, to make a terminal: ", err)
	}
	defer terminal.Close()
	if !cli.Terminal(terminal) {
		t.Error("a terminal is not taken for one")
	}
	if !cli.Colour(terminal) {
		t.Error("a terminal shows no colours")
	}
	t.Setenv("TERM", "dumb")
	if cli.Terminal(terminal) || cli.Colour(terminal) {
		t.Error("it is drawn on a terminal that is dumb")
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	if !cli.Terminal(terminal) || cli.Colour(terminal) {
		t.Error("NO_COLOR removes more than colours, or not even those")
	}
}
