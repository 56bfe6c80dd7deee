package scheduleradapter

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/profile"
)

// readGates are the feature gates that kube-scheduler 1.37.1 reads and that are on by default:
// pkg/features/kube_features.go, and features.NAME in pkg/scheduler and cmd/kube-scheduler.
// TestEveryGateOfKubeSchedulerIsKnown of test/controlplane compares the list with the
// source.
var readGates = strings.Fields(`
	ComponentFlagz ComponentStatusz
	DRAAdminAccess DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaintRules DRADeviceTaints DRAExtendedResource
	DRAFractionalCapacityRange DRAPartitionableDevices DRAPrioritizedList DRAResourceClaimDeviceStatus DRASchedulerFilterTimeout
	DynamicResourceAllocation InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScaling MatchLabelKeysInPodTopologySpread
	NodeDeclaredFeatures NodeInclusionPolicyInPodTopologySpread NominatedNodeNameForExpectation OpportunisticBatching
	PodLevelResources SchedulerAsyncPreemption SchedulerPopFromBackoffQ StorageCapacityScoring VolumeAttributesClass VolumeLimitScaling
`)

// rowsOf are the first and last cells of the tables of a page, by each name in
// backquotes in the first cell.
func rowsOf(t *testing.T, page string) map[string]string {
	text := require.ReadFile(t, page)
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| `") || len(cells) < 2 {
			continue
		}
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(cells[0], -1) {
			rows[name[1]] = cells[len(cells)-1]
		}
	}
	return rows
}

// TestEveryPluginAndGateHasARow: the row of a default plugin, and of a gate that is on, names
// what shows it.
// rule: S5.23
func TestEveryPluginAndGateHasARow(t *testing.T) {
	rows := rowsOf(t, "../docs/differences.md")
	rules := require.ReadFile(t, "simulate/testdata/rules.txt")
	names := slices.Clone(readGates)
	for _, gate := range readGates {
		if _, known := gates[gate]; !known {
			t.Errorf("--feature-gates does not know %s", gate)
		}
	}
	for _, p := range profile.BuiltIn() {
		if p.Default {
			names = append(names, p.Name)
		}
	}
	for _, name := range names {
		shown, found := rows[name]
		switch {
		case !found:
			t.Errorf("docs/differences.md has no row of %s", name)
		case strings.Contains(shown, "the table above"), strings.Contains(shown, "resource-claims"):
			continue
		}
		proofs := regexp.MustCompile(`S\d+\.\d+|Test\w+|filterTimeout`).FindAllString(shown, -1)
		if len(proofs) == 0 {
			t.Errorf("the row of %s names no rule and no test: %s", name, shown)
		}
		for _, proof := range proofs {
			if strings.HasPrefix(proof, "S") && !strings.Contains(string(rules), "\n"+proof+"\t") {
				t.Errorf("the row of %s names the rule %s, which does not exist", name, proof)
			}
			if strings.HasPrefix(proof, "Test") && exec.Command("grep", "-rqw", "--include=*_test.go", "func "+proof, "..").Run() != nil {
				t.Errorf("the row of %s names the test %s, which does not exist", name, proof)
			}
		}
	}
}
