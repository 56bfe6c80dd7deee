package podspec_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/podspec"
)

// TestRestartsIsThatOfTheReducedPod compares both for containers whose restart policies differ.
//
// rule: M.150
func TestRestartsIsThatOfTheReducedPod(t *testing.T) {
	for name, test := range map[string]struct {
		pod              string
		always, ifKilled bool
	}{
		"the policy of the pod by default":      {`{spec: {containers: [{name: c}]}}`, true, true},
		"on failure":                            {`{spec: {restartPolicy: OnFailure, containers: [{name: c}]}}`, false, true},
		"never":                                 {`{spec: {restartPolicy: Never, containers: [{name: c}]}}`, false, false},
		"of the container":                      {`{spec: {restartPolicy: Never, containers: [{name: c, restartPolicy: OnFailure}]}}`, false, true},
		"a sidecar":                             {`{spec: {restartPolicy: Never, initContainers: [{name: c, restartPolicy: Always}]}}`, true, true},
		"an init container":                     {`{spec: {initContainers: [{name: c}]}}`, false, false},
		"an init container with its own policy": {`{spec: {initContainers: [{name: c, restartPolicy: OnFailure}]}}`, false, false},
		"a rule for other codes": {
			`{spec: {containers: [{name: c, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1, 2]}}]}]}}`, false, false},
		"a rule for SIGKILL": {
			`{spec: {containers: [{name: c, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1, 137]}}]}]}}`, false, true},
		"a rule for all but 0": {
			`{spec: {containers: [{name: c, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: NotIn, values: [0]}}]}]}}`, false, true},
		"a rule without codes": {`{spec: {containers: [{name: c, restartPolicy: Never, restartPolicyRules: [{action: Restart}]}]}}`, false, false},
		"a rule that restarts all containers": {
			`{spec: {containers: [{name: c, restartPolicy: Always, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [137]}}, {action: RestartAllContainers, exitCodes: {operator: In, values: [3]}}]}]}}`, false, false},
		"a pod that is being deleted": {`{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}, spec: {containers: [{name: c}]}}`, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(t, test.pod)
			for of, pod := range map[string]*v1.Pod{"the pod": pod, "the reduced pod": podspec.Reduce(pod)} {
				if always, ifKilled := podspec.Restarts(pod, 0); always != test.always || ifKilled != test.ifKilled {
					t.Errorf("%s: always %t, if killed %t", of, always, ifKilled)
				}
			}
		})
	}
}
