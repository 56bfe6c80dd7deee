package demo

import (
	"context"
	"embed"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/manifest"
)

// namespace is that of the script's workloads, image what they run.
const (
	namespace = "shop"
	image     = "playground"
)

// why is an annotation that says in a few words where a workload's pods go.
const why = "why"

//go:embed scheduler.yaml
var schedulerConfig []byte

//go:embed shop storm
var objects embed.FS

func read[T any](document *manifest.Document) (*T, error) {
	object := new(T)
	return object, document.Decode(object)
}

// readPod reads the pod of a file, bound to a node by choice or to none.
func readPod(name, node string) (*v1.Pod, error) {
	data, err := objects.ReadFile("shop/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	document, err := manifest.One(data, "Pod")
	if err != nil {
		return nil, err
	}
	pod, err := read[v1.Pod](&document)
	if node != "" {
		pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
	}
	return pod, err
}

// open creates what the workloads of a directory need and returns them, to be
// created one after the other.
func open(ctx context.Context, client kubernetes.Interface, dir string) (sets []*appsv1.ReplicaSet, err error) {
	data, err := objects.ReadFile(dir + "/workloads.yaml")
	if err != nil {
		return nil, err
	}
	documents, err := manifest.Objects(data)
	if err != nil {
		return nil, err
	}
	for i := range documents {
		document := &documents[i]
		switch document.Kind {
		case "Namespace":
			var o *v1.Namespace
			if o, err = read[v1.Namespace](&document.Document); err == nil {
				_, err = client.CoreV1().Namespaces().Create(ctx, o, metav1.CreateOptions{})
			}
		case "PriorityClass":
			var o *schedulingv1.PriorityClass
			if o, err = read[schedulingv1.PriorityClass](&document.Document); err == nil {
				_, err = client.SchedulingV1().PriorityClasses().Create(ctx, o, metav1.CreateOptions{})
			}
		default:
			var o *appsv1.ReplicaSet
			o, err = read[appsv1.ReplicaSet](&document.Document)
			sets = append(sets, o)
		}
		if err != nil {
			return nil, fmt.Errorf("create %s: %w", document.Kind, err)
		}
	}
	return sets, nil
}
