package openapi

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/evictd/evictd/internal/require"
)

func models() *Models {
	return New([]Resource{
		{GroupVersionKind: v1.SchemeGroupVersion.WithKind("Pod"), Name: "pods", List: "PodList", Namespaced: true, Object: &v1.Pod{}},
		{GroupVersionKind: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), Name: "poddisruptionbudgets", List: "PodDisruptionBudgetList", Namespaced: true, Object: &policyv1.PodDisruptionBudget{}},
	})
}

func TestEveryReferenceLeadsToASchema(t *testing.T) {
	for name, path := range map[string][]string{"v2": {"definitions"}, "v3/api/v1": {"components", "schemas"}, "v3/apis/policy/v1": {"components", "schemas"}} {
		text, contentType, err := models().Document(name, "application/json")
		if err != nil || contentType != "application/json" {
			t.Fatal(name, contentType, err)
		}
		var document map[string]any
		require.NoError(t, json.Unmarshal(text, &document))
		for _, part := range path {
			document = document[part].(map[string]any)
		}
		for _, found := range regexp.MustCompile(`"\$ref":"#/`+strings.Join(path, "/")+`/([^"]+)"`).FindAllSubmatch(text, -1) {
			if document[string(found[1])] == nil {
				t.Errorf("%s: %s leads nowhere", name, found[1])
			}
		}
		if len(document) == 0 {
			t.Errorf("%s describes nothing", name)
		}
	}
}

func TestFieldsKeepTheirMergeKeysFormsAndTexts(t *testing.T) {
	text, _, err := models().Document("v3/api/v1", "")
	require.NoError(t, err)
	for _, want := range []string{
		`"x-kubernetes-patch-merge-key":"name"`, `"x-kubernetes-group-version-kind":[{"group":"","kind":"Pod","version":"v1"}]`,
		`"creationTimestamp":{"description":`, `"format":"date-time"`, `"required":["containers"]`, `Pod is a collection of containers`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestOldClientsGetProtobuf(t *testing.T) {
	text, contentType, err := models().Document("v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	if err != nil || contentType != protobufV2 {
		t.Fatal(contentType, err)
	}
	document := &openapi_v2.Document{}
	if err := proto.Unmarshal(text, document); err != nil || document.GetSwagger() != "2.0" {
		t.Errorf("got %v, %v", document.GetSwagger(), err)
	}
	if _, _, err := models().Document("v3", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"); err == nil {
		t.Error("OpenAPI 3 in protobuf is not refused")
	}
	if text, _, err := models().Document("v3/apis/none/v1", ""); text != nil || err != nil {
		t.Errorf("an unknown group: %s, %v", text, err)
	}
}
