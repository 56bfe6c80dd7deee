package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pair is a line, and evictd's side of it as bytes.
func pair(t testing.TB, silence time.Duration) (*Evictd, *Agent, net.Conn) {
	ours, theirs := net.Pipe()
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
	})
	return NewConn[ToAgent, FromAgent](ours, silence), NewConn[FromAgent, ToAgent](theirs, 0), theirs
}

func TestMessagesArriveAsTheyWereSent(t *testing.T) {
	evictd, agent, _ := pair(t, 0)
	sent := make(chan error, 2)
	go func() {
		sent <- agent.Send(FromAgent{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"line": "one\ntwo"}}}})
		sent <- agent.Send(FromAgent{Reported: "x"})
		agent.Close()
	}()
	first, err := evictd.Receive()
	if err != nil || first.Pod == nil || first.Pod.Annotations["line"] != "one\ntwo" {
		t.Errorf("received %+v, %v", first, err)
	}
	if second, err := evictd.Receive(); err != nil || second.Reported != "x" {
		t.Errorf("received %+v, %v", second, err)
	}
	if _, err := evictd.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	if err := errors.Join(<-sent, <-sent); err != nil {
		t.Error(err)
	}
}

func TestLinesThatAreNoMessagesAreErrors(t *testing.T) {
	for _, text := range []string{"hello\n", "[]\n", strings.Repeat("x", maxMessage+1),
		`{"pod":{"spec":{"containers":[` + strings.Repeat("{},", maxObjects) + "{}]}}}\n"} {
		evictd, _, raw := pair(t, 0)
		go func() { _, _ = io.WriteString(raw, text) }()
		if m, err := evictd.Receive(); err == nil || !strings.HasPrefix(err.Error(), "read message: ") {
			t.Errorf("%.10q: received %+v, %v", text, m, err)
		}
	}
}

func TestMessageThatIsTooLongIsNotSent(t *testing.T) {
	_, agent, _ := pair(t, 0)
	if err := agent.Send(FromAgent{Reported: strings.Repeat("x", maxMessage)}); err == nil {
		t.Error("it was sent")
	}
}

func TestOtherSideThatIsSilentOrDeafIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		evictd, agent, _ := pair(t, AgentTimeout)
		if _, err := evictd.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after silence: %v", err)
		}
		if err := agent.Send(FromAgent{Synced: true}); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("without a reader: %v", err)
		}
	})
}
