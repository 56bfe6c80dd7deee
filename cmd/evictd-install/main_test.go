package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/cli"
)

func TestBadFlagsOfRunAreRefusedTogether(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	var errs bytes.Buffer
	c := newCommand()
	c.SetErr(&errs)
	code := cli.Execute(t.Context(), c, []string{"run", "--root", t.TempDir(), "--state-file=", "--interval=0s"})
	if text := errs.String(); code != cli.ExitBadInput || !strings.Contains(text, "--node-name: expected") || !strings.Contains(text, "--interval 0s: expected") {
		t.Errorf("exit code %d: %s", code, text)
	}
}
