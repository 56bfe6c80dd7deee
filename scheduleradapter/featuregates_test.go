package scheduleradapter

import (
	"strings"
	"testing"
)

// rule: S5.21
func TestFeatureGatesWithoutEffectAreWarnedAbout(t *testing.T) {
	for _, c := range []struct{ flag, want, fault string }{
		{"", "", ""},
		{"SchedulerAsyncPreemption=true,GenericWorkload=false", "", ""},
		{"GenericWorkload=true,GangScheduling=true,Unheard=false", "--feature-gates GangScheduling=true has no effect: GangScheduling is false in evictd-scheduler\n--feature-gates Unheard=false has no effect: evictd-scheduler does not know Unheard", ""},
		{"GenericWorkload", "", "--feature-gates GenericWorkload: expected NAME=true or NAME=false"},
	} {
		_, warnings, err := checkFeatureGates(c.flag)
		fault := ""
		if err != nil {
			fault = err.Error()
		}
		if got := strings.Join(warnings, "\n"); got != c.want || fault != c.fault {
			t.Errorf("%q: warnings %s, error %s", c.flag, got, fault)
		}
	}
}
