// Package guest runs tests of other packages in a machine that has a kernel of its own, and
// reports each of them as a test.
package guest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Suite is tests of a package that run in a machine.
type Suite struct {
	Package string // path below the module
	Run     string // -test.run; empty for all
	Skip    string // -test.skip; empty for none
	Env     string // variables, NAME=VALUE with blanks between
}

// Command is a line of sh that runs the suite's binary, with more flags, and then prints its exit
// status, which Report reads.
func (s Suite) Command(binary string, flags ...string) string {
	if s.Run != "" {
		flags = append(flags, "-test.run='"+s.Run+"'")
	}
	if s.Skip != "" {
		flags = append(flags, "-test.skip='"+s.Skip+"'")
	}
	return fmt.Sprintf("env %s %s -test.v %s; echo \"=== ENDED %s $?\"\n", s.Env, binary, strings.Join(flags, " "), s.Package)
}

// Build makes a program of a package by a command of go, such as build or test -c.
func Build(t *testing.T, root, pkg, at string, command ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", append(command, "-trimpath", "-ldflags=-s -w", "-o", at, ".")...)
	c.Dir, c.Env = filepath.Join(root, pkg), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
}

var (
	verdict = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+) \((.*)\)$`)
	ended   = regexp.MustCompile(`^=== ENDED (\S+) (\d+)$`)
	noise   = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) |^(PASS|FAIL)$`)
)

// Report reads what suites write in a machine, and has each of their tests for a test of t. It
// returns the suites that have not ended, and the last line. Lines that begin with | are rows of a
// table, which it prints.
func Report(t *testing.T, out io.Reader, suites []Suite) (left []Suite, last string) {
	t.Helper()
	left = suites
	var output strings.Builder
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil && line == "" { // the machine has ended
			break
		}
		line = strings.TrimRight(line, "\r\n")
		last = line
		if at := ended.FindStringSubmatch(line); at != nil {
			if at[2] != "0" && output.Len() > 0 {
				t.Errorf("%s ended with %s:\n%s", at[1], at[2], output.String())
			}
			output.Reset()
			left = left[min(1, len(left)):]
			continue
		}
		v := verdict.FindStringSubmatch(line)
		if v == nil {
			if strings.HasPrefix(line, "|") {
				fmt.Println(line)
			}
			if !noise.MatchString(line) {
				output.WriteString(line + "\n")
			}
			continue
		}
		name := v[2]
		if len(left) > 0 && left[0].Env != "" {
			name += " " + left[0].Env
		}
		t.Run(name, func(t *testing.T) {
			t.Logf("%s in the machine\n%s", v[3], output.String())
			switch v[1] {
			case "FAIL":
				t.Fail()
			case "SKIP":
				t.SkipNow()
			}
		})
		output.Reset()
	}
	if output.Len() > 0 {
		t.Logf("the last output:\n%s", output.String())
	}
	return left, last
}
