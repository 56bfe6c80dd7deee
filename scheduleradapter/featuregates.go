package scheduleradapter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// gates are the feature gates of Kubernetes 1.37 that change a scheduler, with their
// state in evictd-scheduler. --feature-gates changes only genericWorkload.
var gates = map[string]bool{
	"SchedulerAsyncPreemption": true, "SchedulerPopFromBackoffQ": true, "NominatedNodeNameForExpectation": true,
	"ClearingNominatedNodeNameAfterBinding": true, "NodeDeclaredFeatures": true, "PodLevelResources": true,
	"InPlacePodVerticalScaling": true, "InPlacePodLevelResourcesVerticalScaling": true, "StorageCapacityScoring": true,
	"VolumeLimitScaling": true, "VolumeAttributesClass": true, "ComponentFlagz": true, "ComponentStatusz": true, "MatchLabelKeysInPodAffinity": true, "MatchLabelKeysInPodTopologySpread": true,
	"NodeInclusionPolicyInPodTopologySpread": true, "SchedulerQueueingHints": true,
	"OpportunisticBatching": false, "SchedulerAsyncAPICalls": false, "GenericWorkload": false, "GangScheduling": false,
	"TopologyAwareWorkloadScheduling": false, "InterPodAffinityHostnameFastPath": false, "SchedulerPreQueueingHints": false,
	"TaintTolerationComparisonOperators": false, "InPlacePodVerticalScalingSchedulerPreemption": false,
	"DynamicResourceAllocation": true, "DRAPrioritizedList": true, "DRAAdminAccess": true, "DRAPartitionableDevices": true,
	"DRAConsumableCapacity": true, "DRAFractionalCapacityRange": true, "DRADeviceTaints": true, "DRADeviceTaintRules": true,
	"DRADeviceBindingConditions": true, "DRAResourceClaimDeviceStatus": true, "DRAExtendedResource": true,
	"DRASchedulerFilterTimeout": true, "DRAResourceClaimGranularStatusAuthorization": true,
	"DRADerivedAttributes": false, "DRADeviceCompatibilityGroups": false, "DRAWorkloadResourceClaims": false,
	"DRAListTypeAttributes": false, "DRANodeAllocatableResources": false, "DRAOptionalNodeOperations": false,
	"DRAPartitionableDevicesType": false, "DRAResourcePoolStatus": false,
}

// genericWorkload: pods of a PodGroup are scheduled together.
const genericWorkload = "GenericWorkload"

// checkFeatureGates reads --feature-gates: whether pods are scheduled in groups, and a
// warning for each gate that has no effect as it is set.
func checkFeatureGates(flag string) (podGroups bool, warnings []string, err error) {
	for _, setting := range strings.FieldsFunc(flag, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, value, _ := strings.Cut(setting, "=")
		on, invalid := strconv.ParseBool(value)
		if invalid != nil {
			return false, nil, fmt.Errorf("--feature-gates %s: expected NAME=true or NAME=false", setting)
		}
		switch state, known := gates[name]; {
		case name == genericWorkload:
			podGroups = on
		case !known:
			warnings = append(warnings, fmt.Sprintf("--feature-gates %s has no effect: evictd-scheduler does not know %s", setting, name))
		case on != state:
			warnings = append(warnings, fmt.Sprintf("--feature-gates %s has no effect: %s is %t in evictd-scheduler", setting, name, state))
		}
	}
	slices.Sort(warnings)
	return podGroups, warnings, nil
}
