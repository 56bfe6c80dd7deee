package defaults

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// TestTemplatesGetTheDefaultsOfContainersInEveryKind shows that the walk reaches templates, also
// those in templates. What a kube-apiserver sets is compared in test/controlplane/suite.
func TestTemplatesGetTheDefaultsOfContainersInEveryKind(t *testing.T) {
	s, template := New(), v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{Image: "app"}}}}
	deployment := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template}}
	cron := &batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}}
	controller := &v1.ReplicationController{Spec: v1.ReplicationControllerSpec{Template: &template}}
	for kind, object := range map[any]*v1.PodTemplateSpec{deployment: &deployment.Spec.Template, cron: &cron.Spec.JobTemplate.Spec.Template, controller: controller.Spec.Template} {
		s.Set(kind)
		c := object.Spec.Containers[0]
		if object.Spec.DNSPolicy != v1.DNSClusterFirst || c.ImagePullPolicy != v1.PullAlways || c.TerminationMessagePath == "" {
			t.Errorf("%T: %+v", kind, object.Spec)
		}
		if object.Spec.SecurityContext == nil {
			t.Errorf("%T: no security context", kind)
		}
	}
	before := deployment.DeepCopy()
	if s.Set(deployment); !apiequality.Semantic.DeepEqual(before, deployment) {
		t.Errorf("set again it differs: %+v", deployment)
	}
}

func TestImagesWithTheTagLatestAreAlwaysPulled(t *testing.T) {
	const digest = "@sha256:0123456789012345678901234567890123456789012345678901234567890123"
	for image, want := range map[string]v1.PullPolicy{
		"app": v1.PullAlways, "app:latest": v1.PullAlways, "registry:5000/team/app": v1.PullAlways, "app:latest" + digest: v1.PullAlways, "Registry.example/app": v1.PullAlways,
		"app:1": v1.PullIfNotPresent, "app" + digest: v1.PullIfNotPresent, "registry:5000/app:v1.2": v1.PullIfNotPresent, "App": v1.PullIfNotPresent, "": v1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%q: %s, want %s", image, got, want)
		}
	}
}

func BenchmarkSetOfACompletePod(b *testing.B) {
	s, pod := New(), &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Image: "app:1"}}}}
	for b.Loop() {
		s.Set(pod)
	}
}
