package apply_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/oom"
	"github.com/evictd/evictd/oom/apply"
)

// listing answers each listing of a container with the next of its lists, and
// with the last one from then on.
type listing map[string][][]int

func (l listing) Processes(container string, into []int) ([]int, error) {
	lists := l[container]
	if len(lists) == 0 {
		return into, nil
	}
	if len(lists) > 1 {
		l[container] = lists[1:]
	}
	return append(into, lists[0]...), nil
}

type failing struct{}

func (failing) Processes(string, []int) ([]int, error) { return nil, errors.New("no list") }

// rule: M.14
func TestScoresReachAProcessAndItsLateChild(t *testing.T) {
	shell := startShell(t)
	early := shell.startChild(t)
	a := newApplier(t, "/proc", nil)
	inits := apply.Inits{}
	scores := []oom.ContainerScore{{Name: "c", ScoreAdj: 700}, {Name: "not-started", ScoreAdj: 1000}}
	inContainer := listing{"c": {{shell.pid}}}

	wantCounts(t, a, scores, inContainer, inits, apply.Counts{Rewritten: 1})
	wantScore(t, shell.pid, 700)
	wantCounts(t, a, scores, inContainer, inits, apply.Counts{})

	// A child that was forked before its parent had the score.
	inContainer["c"] = [][]int{{shell.pid, early}}
	wantCounts(t, a, scores, inContainer, inits, apply.Counts{Rewritten: 1})
	wantScore(t, early, 700)
}

// rule: M.67
func TestAScoreThatAProcessHasChosenStays(t *testing.T) {
	shell := startShell(t)
	worker := shell.startChild(t)
	choose := func(pid, score int) {
		t.Helper()
		require.NoError(t, os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(score)), 0))
	}
	choose(worker, 900)
	a := newApplier(t, "/proc", nil)
	inits := apply.Inits{}
	scores := []oom.ContainerScore{{Name: "c", ScoreAdj: 700}}
	inContainer := listing{"c": {{worker, shell.pid}}}
	wantCounts(t, a, scores, inContainer, inits, apply.Counts{Rewritten: 1})
	wantScore(t, shell.pid, 700)
	wantScore(t, worker, 900)

	// The first process chooses, too, after it was given its score.
	choose(shell.pid, 800)
	wantCounts(t, a, scores, inContainer, inits, apply.Counts{})
	wantScore(t, shell.pid, 800)

	// The container is started again: its new first process has the runtime's score.
	again := startShell(t)
	inContainer["c"] = [][]int{{again.pid}}
	wantCounts(t, a, scores, inContainer, inits, apply.Counts{Rewritten: 1})
	wantScore(t, again.pid, 700)
}

func TestARefusedScoreIsLoggedOnceCountedAndStopsNothing(t *testing.T) {
	shell := startShell(t)
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", shell.pid), []byte("-999"), 0); err == nil {
		t.Skip("skipped: needs a user without CAP_SYS_RESOURCE")
	}
	other := startShell(t)
	var log bytes.Buffer
	a := newApplier(t, "/proc", &log)
	scores := []oom.ContainerScore{{Name: "safe", ScoreAdj: -997}, {Name: "exposed", ScoreAdj: 1000}}
	of := listing{"safe": {{shell.pid}}, "exposed": {{other.pid}}}
	wantCounts(t, a, scores, of, apply.Inits{}, apply.Counts{Rewritten: 1, Refused: 1})
	wantCounts(t, a, scores, of, apply.Inits{}, apply.Counts{Refused: 1})
	wantScore(t, other.pid, 1000)
	if logged := strings.Count(log.String(), "refuses"); logged != 1 {
		t.Errorf("logged %d times, want once:\n%s", logged, &log)
	}
}

func TestAProcessThatLeftTheContainerIsNotTouched(t *testing.T) {
	shell := startShell(t)
	before := score(t, shell.pid)
	a := newApplier(t, "/proc", nil)
	of := listing{"c": {{shell.pid}, {}}}
	wantCounts(t, a, []oom.ContainerScore{{Name: "c", ScoreAdj: 500}}, of, apply.Inits{}, apply.Counts{})
	wantScore(t, shell.pid, before)
}

func TestAVanishedProcessIsNormal(t *testing.T) {
	shell := startShell(t)
	shell.stop()
	a := newApplier(t, "/proc", nil)
	of := listing{"c": {{shell.pid}}}
	wantCounts(t, a, []oom.ContainerScore{{Name: "c", ScoreAdj: 500}}, of, apply.Inits{}, apply.Counts{})
}

func TestAnUnreadableContainerIsAnErrorThatNamesIt(t *testing.T) {
	a := newApplier(t, "/proc", nil)
	_, err := a.Apply([]oom.ContainerScore{{Name: "web"}}, failing{}, apply.Inits{})
	if err == nil || !strings.Contains(err.Error(), "container web") {
		t.Errorf("error %v, want one that names container web", err)
	}
}

func TestTheProcfsMountIsTheGivenOne(t *testing.T) {
	proc := t.TempDir()
	dir := filepath.Join(proc, "42")
	require.NoError(t, os.Mkdir(dir, 0o755))
	file := filepath.Join(dir, "oom_score_adj")
	require.NoError(t, os.WriteFile(file, []byte("0\n"), 0o644))
	stat := "42 (c) S 1 42 42" + strings.Repeat(" 0", 13) + " 1 0 7"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o644))
	a := newApplier(t, proc, nil)
	wantCounts(t, a, []oom.ContainerScore{{Name: "c", ScoreAdj: 975}}, listing{"c": {{42, 43}}}, apply.Inits{}, apply.Counts{Rewritten: 1})
	if text, _ := os.ReadFile(file); !strings.HasPrefix(string(text), "975") {
		t.Errorf("score file holds %q", text)
	}
	if _, err := apply.New(filepath.Join(proc, "absent"), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("an absent procfs opened")
	}
}

func BenchmarkApplyToProcessesThatHoldTheirScore(b *testing.B) {
	a, err := apply.New("/proc", slog.New(slog.DiscardHandler))
	require.NoError(b, err)
	defer a.Close()
	pids := slices.Repeat([]int{os.Getpid()}, 100)
	own := require.ReadFile(b, "/proc/self/oom_score_adj")
	held, err := strconv.Atoi(strings.TrimSpace(string(own)))
	require.NoError(b, err)
	scores := []oom.ContainerScore{{Name: "c", ScoreAdj: held}}
	for b.Loop() {
		if _, err := a.Apply(scores, listing{"c": {pids}}, apply.Inits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func newApplier(t *testing.T, proc string, log io.Writer) *apply.Applier {
	t.Helper()
	if log == nil {
		log = io.Discard
	}
	a, err := apply.New(proc, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	t.Cleanup(func() { a.Close() })
	return a
}

func wantCounts(t *testing.T, a *apply.Applier, scores []oom.ContainerScore, of apply.Containers, inits apply.Inits, want apply.Counts) {
	t.Helper()
	got, err := a.Apply(scores, of, inits)
	if err != nil || got != want {
		t.Errorf("counts %+v, error %v; want %+v", got, err, want)
	}
}

func score(t *testing.T, pid int) int {
	t.Helper()
	text := require.ReadFile(t, fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	return n
}

func wantScore(t *testing.T, pid, want int) {
	t.Helper()
	if got := score(t, pid); got != want {
		t.Errorf("process %d has score %d, want %d", pid, got, want)
	}
}

// shell is a real process that starts a child when its standard input has a line.
type shell struct {
	pid  int
	in   io.WriteCloser
	out  *bufio.Reader
	stop func()
}

func startShell(t *testing.T) *shell {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "while read _; do sleep 600 & echo $!; done; kill $! 2>/dev/null")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	s := &shell{pid: cmd.Process.Pid, in: in, out: bufio.NewReader(out)}
	s.stop = func() {
		in.Close()
		cmd.Wait()
	}
	t.Cleanup(s.stop)
	return s
}

func (s *shell) startChild(t *testing.T) int {
	t.Helper()
	fmt.Fprintln(s.in)
	line, err := s.out.ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	return pid
}
