package embeddedapi_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

func amounts(pairs ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func quotaOf(hard v1.ResourceList, scopes ...v1.ResourceQuotaScope) *v1.ResourceQuota {
	return &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: v1.ResourceQuotaSpec{Hard: hard, Scopes: scopes}}
}

func using(name string, requests, limits v1.ResourceList) *v1.Pod {
	p := pod(name)
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: requests, Limits: limits}
	return p
}

func TestQuotaRefusesWhatExceedsIt(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	quotas, pods := client.CoreV1().ResourceQuotas("default"), client.CoreV1().Pods("default")
	_, err := quotas.Create(ctx, quotaOf(amounts("pods", "2", "requests.cpu", "1", "count/configmaps", "1", "services.nodeports", "1")), metav1.CreateOptions{})
	require.NoError(t, err)
	refused := func(err error, message string) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), message) {
			t.Errorf("%v; expected 403 with %q", err, message)
		}
	}
	_, err = pods.Create(ctx, using("none", nil, nil), metav1.CreateOptions{})
	refused(err, `pods "none" is forbidden: failed quota: q: must specify requests.cpu for: main`)
	_, err = pods.Create(ctx, using("a", amounts("cpu", "600m"), nil), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = pods.Create(ctx, using("b", amounts("cpu", "500m"), nil), metav1.CreateOptions{})
	refused(err, `pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1`)
	_, err = pods.Create(ctx, using("b", amounts("cpu", "100m"), nil), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = pods.Create(ctx, using("c", amounts("cpu", "100m"), nil), metav1.CreateOptions{DryRun: []string{"All"}})
	refused(err, `exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2`)
	service := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: v1.ServiceSpec{Type: v1.ServiceTypeClusterIP, Ports: []v1.ServicePort{{Name: "a", Port: 1}, {Name: "b", Port: 2}}}}
	service, err = client.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{})
	require.NoError(t, err)
	service.Spec.Type = v1.ServiceTypeNodePort
	_, err = client.CoreV1().Services("default").Update(ctx, service, metav1.UpdateOptions{})
	refused(err, `exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1`)
	// A pod that has ended uses nothing.
	ended, err := pods.Get(ctx, "a", metav1.GetOptions{})
	require.NoError(t, err)
	ended.Status.Phase = v1.PodSucceeded
	_, err = pods.UpdateStatus(ctx, ended, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = pods.Create(ctx, using("c", amounts("cpu", "900m"), nil), metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, pods.Delete(ctx, "b", metav1.DeleteOptions{}))
	wait.Until(t, "the quota's use", func() bool {
		q, err := quotas.Get(ctx, "q", metav1.GetOptions{})
		require.NoError(t, err)
		return q.Status.Used.Pods().Value() == 1 && q.Status.Used.Name("requests.cpu", resource.DecimalSI).String() == "900m" &&
			q.Status.Hard.Pods().Value() == 2
	})
}

func TestQuotaIsNotExceededByClientsAtOnce(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	_, err := client.CoreV1().ResourceQuotas("default").Create(ctx, quotaOf(amounts("pods", "7"), v1.ResourceQuotaScopeBestEffort), metav1.CreateOptions{})
	require.NoError(t, err)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			client.CoreV1().Pods("default").Create(ctx, using(fmt.Sprint("p", i), nil, nil), metav1.CreateOptions{})
		})
	}
	all.Wait()
	list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	if len(list.Items) != 7 {
		t.Errorf("%d pods; expected 7", len(list.Items))
	}
	_, err = client.CoreV1().Pods("default").Create(ctx, using("burstable", amounts("cpu", "1"), nil), metav1.CreateOptions{})
	require.NoError(t, err) // it is out of the quota's scope
}

func TestLimitRangeSetsDefaultsAndRefusesOthers(t *testing.T) {
	client, ctx := serve(t, "").client(t), t.Context()
	limits := &v1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: v1.LimitRangeSpec{Limits: []v1.LimitRangeItem{
		{Type: v1.LimitTypeContainer, Min: amounts("cpu", "100m"), Max: amounts("cpu", "1"), Default: amounts("cpu", "500m", "memory", "1Gi"), DefaultRequest: amounts("cpu", "200m"), MaxLimitRequestRatio: amounts("cpu", "4")},
		{Type: v1.LimitTypePod, Max: amounts("memory", "2Gi")},
		{Type: v1.LimitTypePersistentVolumeClaim, Min: amounts("storage", "1Gi"), Max: amounts("storage", "2Gi")},
	}}}
	_, err := client.CoreV1().LimitRanges("default").Create(ctx, limits, metav1.CreateOptions{})
	require.NoError(t, err)
	p, err := client.CoreV1().Pods("default").Create(ctx, using("p", nil, nil), metav1.CreateOptions{})
	require.NoError(t, err)
	r := p.Spec.Containers[0].Resources
	if text := fmt.Sprint(r.Requests.Cpu(), r.Limits.Cpu(), r.Requests.Memory(), r.Limits.Memory()); text != "200m 500m 1Gi 1Gi" || p.Status.QOSClass != v1.PodQOSBurstable {
		t.Errorf("defaults: %s", text)
	}
	if set := p.Annotations["kubernetes.io/limit-ranger"]; set != "LimitRanger plugin set: cpu, memory request for container main; cpu, memory limit for container main" {
		t.Errorf("annotation %q", set)
	}
	for _, c := range []struct {
		requests, limits v1.ResourceList
		message          string
	}{
		{amounts("cpu", "50m"), amounts("cpu", "100m"), `pods "x" is forbidden: minimum cpu usage per Container is 100m, but request is 50m`},
		{nil, amounts("cpu", "2"), "maximum cpu usage per Container is 1, but limit is 2"},
		{amounts("cpu", "100m"), amounts("cpu", "1"), "cpu max limit to request ratio per Container is 4, but provided ratio is 10.000000"},
		{nil, amounts("memory", "3Gi"), "maximum memory usage per Pod is 2Gi, but limit is 3Gi"},
	} {
		_, err := client.CoreV1().Pods("default").Create(ctx, using("x", c.requests, c.limits), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%v; expected %q", err, c.message)
		}
	}
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources: v1.VolumeResourceRequirements{Requests: amounts("storage", "3Gi")}}}
	_, err = client.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi") {
		t.Errorf("a claim that is too large: %v", err)
	}
	limits.Spec.Limits[0].Min = amounts("cpu", "2")
	limits.Name = "wrong"
	_, err = client.CoreV1().LimitRanges("default").Create(ctx, limits, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "min value 2 is greater than max value 1") {
		t.Errorf("a wrong LimitRange: %v", err)
	}
}
