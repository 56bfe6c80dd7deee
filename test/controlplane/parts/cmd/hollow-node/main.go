// Hollow-node runs kubemark's hollow kubelet: a kubelet whose containers are entries in a
// table. The node is Ready, admits pods, reports them as Running and ends them; no
// process starts, and nothing listens.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	info "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	cri "k8s.io/cri-client/pkg"
	"k8s.io/cri-client/pkg/fake"
	"k8s.io/klog/v2"
	cadvisor "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"
)

// maxPods is the kubelet's default.
const maxPods = 110

// machine is that of the node; kubemark's has one core.
type machine struct{ cadvisor.Fake }

// MachineInfo implements cadvisor.Interface.
func (m *machine) MachineInfo(logger klog.Logger) (*info.MachineInfo, error) {
	i, err := m.Fake.MachineInfo(logger)
	if err == nil {
		i.NumCores, i.MemoryCapacity = 4, 16<<30
	}
	return i, err
}

// containers is kubemark's manager of containers, with ephemeral storage, which specs of
// it divide.
type containers struct{ cm.ContainerManager }

// GetCapacity implements cm.ContainerManager.
func (c containers) GetCapacity(klog.Logger, bool) v1.ResourceList {
	return v1.ResourceList{v1.ResourceEphemeralStorage: *resource.NewQuantity(100<<30, resource.BinarySI)}
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how the API server is reached")
	name := flag.String("name", "", "name of the node")
	zone := flag.String("zone", "", "the node's topology.kubernetes.io/zone")
	dir := flag.String("dir", "", "where the kubelet keeps its files")
	flag.Parse()
	if err := run(context.Background(), *kubeconfig, *name, *zone, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "hollow-node:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, name, zone, dir string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType, config.QPS = "application/vnd.kubernetes.protobuf", -1 // at any rate
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	flags, kubelet := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubeletOptions{
		NodeName: name, MaxPods: maxPods, NodeLabels: map[string]string{v1.LabelTopologyZone: zone},
	})
	kubelet.EnableServer = false
	if err := os.RemoveAll(flags.RootDirectory); err != nil { // made below /tmp
		return err
	}
	flags.RootDirectory = dir
	kubelet.StaticPodPath, kubelet.PodLogsDir = filepath.Join(dir, "manifests"), filepath.Join(dir, "logs")
	if err := os.MkdirAll(kubelet.StaticPodPath, 0o700); err != nil {
		return err
	}
	config.Timeout = kubelet.NodeStatusUpdateFrequency.Duration
	heartbeat, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	endpoint := "unix://" + filepath.Join(dir, "cri.sock")
	runtime := fake.NewFakeRemoteRuntime()
	if err := runtime.Start(endpoint); err != nil {
		return err
	}
	defer runtime.Stop()
	service, err := cri.NewRemoteRuntimeServiceBuilder().WithEndpoint(endpoint).WithConnectionTimeout(15 * time.Second).Build(ctx)
	if err != nil {
		return err
	}
	kubemark.NewHollowKubelet(flags, kubelet, client, heartbeat, &machine{cadvisor.Fake{NodeName: name}},
		runtime.ImageService, service, containers{cm.NewStubContainerManager()}).Run(ctx)
	return nil
}
