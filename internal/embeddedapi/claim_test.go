package embeddedapi_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestClaimsGrowOnceTheyAreBound holds that the spec of a claim is immutable but for the volume that it is
// bound to, and then for its size.
func TestClaimsGrowOnceTheyAreBound(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	claims := client.CoreV1().PersistentVolumeClaims("default")
	must[*v1.PersistentVolumeClaim](t)(claims.Create(ctx, &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, Resources: v1.VolumeResourceRequirements{Requests: amounts("storage", "1Gi")}}}, createOptions))
	patch := func(body string, sub ...string) error {
		_, err := claims.Patch(ctx, "c", types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
		return err
	}
	if err := patch(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`); !apierrors.IsInvalid(err) {
		t.Errorf("a claim that waits grows: %v", err)
	}
	for _, step := range [][]string{{`{"spec":{"volumeName":"v"}}`}, {`{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`, "status"}, {`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`}} {
		if err := patch(step[0], step[1:]...); err != nil {
			t.Errorf("%s: %v", step[0], err)
		}
	}
	for _, body := range []string{`{"spec":{"volumeName":"w"}}`, `{"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`, `{"spec":{"accessModes":["ReadWriteMany"]}}`} {
		if err := patch(body); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", body, err)
		}
	}
}
