package suite_test

import (
	"encoding/json"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// statuses are parts of the statuses of objects, right and wrong ones, by the paths of their kinds in {ns}. The status
// that is sent first is stored.
var statuses = map[string][]string{
	"/api/v1/namespaces":                             {`{"phase":"Other"}`, `{"phase":"Active"}`, `{"phase":"Terminating"}`, `{"conditions":[{"type":"A","status":"True"}]}`},
	"/api/v1/namespaces/{ns}/services":               {`{"loadBalancer":{"ingress":[]}}`, `{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}`, `{"conditions":[{"type":"A","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`},
	"/api/v1/namespaces/{ns}/resourcequotas":         {`{"hard":{"pods":"1"},"used":{"pods":"1"}}`, `{"used":{"pods":"-1"}}`, `{"used":{"other":"1"}}`, `{"used":{"a b":"1"}}`, `{"hard":{"pods":"1.5"}}`},
	"/api/v1/namespaces/{ns}/replicationcontrollers": replicas, "/apis/apps/v1/namespaces/{ns}/replicasets": replicas, "/apis/apps/v1/namespaces/{ns}/statefulsets": replicas, "/apis/apps/v1/namespaces/{ns}/deployments": replicas,
	"/apis/apps/v1/namespaces/{ns}/daemonsets": {`{"currentNumberScheduled":1,"numberMisscheduled":1,"desiredNumberScheduled":1,"numberReady":1,"collisionCount":2}`, `{"currentNumberScheduled":-1,"numberMisscheduled":-1,"desiredNumberScheduled":-1,"numberReady":-1,"observedGeneration":-1}`,
		`{"updatedNumberScheduled":-1,"numberAvailable":-1,"numberUnavailable":-1}`, `{"collisionCount":1}`, `{"collisionCount":null}`, `{"collisionCount":-1}`},
	"/apis/batch/v1/namespaces/{ns}/cronjobs": {`{"lastScheduleTime":"2026-01-01T00:00:00Z"}`, `{"active":[{"name":"A_"}]}`},
	"/apis/batch/v1/namespaces/{ns}/jobs": {
		`{"startTime":"2026-01-02T00:00:00Z","active":1,"failed":1,"succeeded":1,"ready":1}`, `{"active":-1,"failed":-1,"succeeded":-1,"ready":-1,"terminating":-1}`, `{"ready":2}`, `{"startTime":"2026-01-01T00:00:00Z"}`, `{"startTime":null}`, `{"completionTime":"2026-01-01T00:00:00Z"}`,
		`{"completedIndexes":"1"}`, `{"failedIndexes":"1"}`, `{"uncountedTerminatedPods":{"succeeded":["a","","b"],"failed":["a","c",""]}}`, `{"conditions":[{"type":"Complete","status":"True"}]}`, `{"conditions":[{"type":"Failed","status":"True"}],"active":0,"ready":0}`,
		`{"conditions":[{"type":"Failed","status":"True"},{"type":"FailureTarget","status":"True"}],"active":0,"ready":0}`, `{"conditions":[{"type":"Complete","status":"True"},{"type":"Failed","status":"True"},{"type":"FailureTarget","status":"True"},{"type":"SuccessCriteriaMet","status":"True"}],"terminating":1}`,
		`{"conditions":[{"type":"Complete","status":"True"},{"type":"SuccessCriteriaMet","status":"True"}],"active":0,"ready":0,"completionTime":"2026-01-03T00:00:00Z","uncountedTerminatedPods":{"failed":["a"]}}`,
		`{"conditions":[{"type":"Complete","status":"True"},{"type":"SuccessCriteriaMet","status":"True"}],"active":0,"ready":0,"completionTime":"2026-01-03T00:00:00Z"}`,
	},
	"/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers": {`{"currentReplicas":1,"desiredReplicas":1}`, `{"currentReplicas":-1,"desiredReplicas":-1,"observedGeneration":-1}`, `{"conditions":[{"type":"A","status":"True","observedGeneration":-1}]}`},
	"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets":          {`{"disruptionsAllowed":-1,"currentHealthy":-1,"desiredHealthy":-1,"expectedPods":-1,"observedGeneration":-1}`},
	"/api/v1/persistentvolumes":                                     {`{"phase":"Other"}`, `{"phase":"Bound","reason":"r"}`},
	"/api/v1/namespaces/{ns}/persistentvolumeclaims": {`{"phase":"Other"}`, `{"capacity":{"storage":"-1","other":"1"}}`, `{"allocatedResourceStatuses":{"storage":"Other","other":"NodeResizePending","a b":"NodeResizePending"}}`, `{"allocatedResources":{"storage":"-1","a.b/c":"1","cpu":"1"}}`,
		`{"allocatedResourceStatuses":{"storage":"NodeResizePending"},"allocatedResources":{"storage":"2Gi"},"capacity":{"storage":"1Gi"}}`},
	"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims": {`{"reservedFor":[{"resource":"pods","name":"a","uid":"b"}]}`, `{"allocation":{}}`, `{"allocation":{"devices":{"results":[{"request":"a","driver":"A_","pool":"p","device":"d"}]}}}`,
		`{"devices":[{"driver":"a","pool":"p","device":"d"}]}`, `{"allocation":{"nodeSelector":{"nodeSelectorTerms":[]}}}`},
	"/apis/resource.k8s.io/v1/devicetaintrules": {`{"conditions":[{"type":"-","status":"Other","reason":""}]}`, `{"conditions":[{"type":"A","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`},
	"/apis/storage.k8s.io/v1/volumeattachments": {`{"attached":true,"attachmentMetadata":{"a":"b"}}`, `{"attachError":{"message":"m"}}`},
}

var replicas = []string{`{"replicas":2,"readyReplicas":1,"availableReplicas":1,"collisionCount":2}`, `{"replicas":-1,"fullyLabeledReplicas":-1,"readyReplicas":-1,"availableReplicas":-1,"updatedReplicas":-1,"currentReplicas":-1}`, `{"fullyLabeledReplicas":3,"readyReplicas":3}`,
	`{"availableReplicas":2}`, `{"availableReplicas":3,"updatedReplicas":3,"currentReplicas":3}`, `{"observedGeneration":-1,"terminatingReplicas":-1,"unavailableReplicas":-1}`, `{"collisionCount":1}`, `{"collisionCount":null}`, `{"collisionCount":-1}`}

// TestEveryFieldOfEveryStatusIsChecked changes the status of an object by each part, and with it metadata and spec,
// which stay.
func TestEveryFieldOfEveryStatusIsChecked(t *testing.T) {
	compareKinds(t, "statuses", func(s *side, path string, body object, hasStatus bool, kept map[string]string) (answers []any) {
		if !hasStatus {
			return nil
		}
		body["metadata"] = object{"name": "a"}
		s.must(t, random{}.sends("POST", path, "", body), kept)
		for i, part := range append([]string{`{}`}, statuses[path]...) {
			options := "?dryRun=All"
			if i == 1 {
				options = ""
			}
			r := request{Request: "PATCH " + path + "/a/status" + options, As: "merge", Body: json.RawMessage(`{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"}},"status":` + part + `}`)}
			code, docs, err := r.send(s.client, s.host, kept)
			require.NoError(t, err)
			answers = append(answers, object{short(part): s.answer(r, code, docs, map[string]string{}, map[string]bool{})})
		}
		s.must(t, random{}.sends("DELETE", path+"/a", "", deleteNow), kept)
		return answers
	})
}
