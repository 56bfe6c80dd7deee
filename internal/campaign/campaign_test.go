package campaign

import (
	"fmt"
	"testing"
	"time"
)

// fatal is a test that fails.
type fatal struct {
	testing.TB
	said string
}

func (f *fatal) Helper() {}

func (f *fatal) Fatalf(format string, args ...any) { f.said = fmt.Sprintf(format, args...) }

func TestAVariableSaysHowMuchThenTheSmallestThenTheUsual(t *testing.T) {
	const variable = "EVICTD_CAMPAIGN_TEST"
	for _, c := range []struct {
		variable, smallest string
		want               int
	}{{"", "", 500}, {"", "1", 2}, {"7", "", 7}, {"7", "1", 7}} {
		t.Setenv(variable, c.variable)
		t.Setenv(SmallestVariable, c.smallest)
		if got := Count(t, variable, 500, 2); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
		if c.variable != "" {
			t.Setenv(variable, c.variable+"s")
		}
		if got := Span(t, variable, 500*time.Second, 2*time.Second); got != time.Duration(c.want)*time.Second {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	for _, bad := range []string{"many", "0", "-1", "1.5"} {
		t.Setenv(variable, bad)
		count, span := &fatal{TB: t}, &fatal{TB: t}
		Count(count, variable, 1, 1)
		Span(span, variable, 1, 1)
		if want := fmt.Sprintf("%s=%q: expected a number above 0", variable, bad); count.said != want {
			t.Errorf("got %q, want %q", count.said, want)
		}
		if want := fmt.Sprintf("%s=%q: expected a duration above 0, such as 30m", variable, bad); span.said != want {
			t.Errorf("got %q, want %q", span.said, want)
		}
	}
}
