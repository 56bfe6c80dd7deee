package cluster_test

import (
	"bytes"
	"os"
	"path/filepath"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/containerd/cluster"
	"github.com/evictd/evictd/test/containerd/node"
	"github.com/evictd/evictd/test/controlplane/apiserver"
)

// keepToken has the DaemonSet of deploy/token.yaml keep a token in a file of the first node,
// and returns a kubeconfig with that file. renew replaces the pod that the token is bound to,
// and returns once the API server refuses that token and the file has another.
func keepToken(c *cluster.Cluster) (kubeconfig string, renew func()) {
	c.T.Helper()
	must := func(err error) {
		c.T.Helper()
		if err != nil {
			c.T.Fatal(err)
		}
	}
	dir := c.T.TempDir()
	set := tokenDaemonSet(c, dir)
	sets, pods := c.AppsV1().DaemonSets(set.Namespace), c.CoreV1().Pods(set.Namespace)
	_, err := sets.Create(c.T.Context(), set, metav1.CreateOptions{})
	must(err)
	c.T.Cleanup(func() { c.Remove(set.Namespace) })
	file := filepath.Join(dir, "token")
	read := func(before []byte) (token []byte) {
		c.T.Helper()
		c.Await("a token in "+file, func() bool {
			token, _ = os.ReadFile(file)
			return len(token) > 0 && !bytes.Equal(token, before)
		})
		return token
	}
	first := read(nil)
	config, err := clientcmd.LoadFromFile(c.API.Kubeconfig(apiserver.Admin))
	must(err)
	for _, user := range config.AuthInfos {
		user.ClientCertificateData, user.ClientKeyData, user.TokenFile = nil, nil, file
	}
	kubeconfig = filepath.Join(dir, "kubeconfig")
	must(clientcmd.WriteToFile(*config, kubeconfig))
	return kubeconfig, func() {
		c.T.Helper()
		must(pods.DeleteCollection(c.T.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}, metav1.ListOptions{}))
		read(first)
		as := clientWith(c, first)
		c.Await("the API server to refuse the first token", func() bool {
			_, err := as.CoreV1().Nodes().Get(c.T.Context(), c.Nodes[0].Name, metav1.GetOptions{})
			return apierrors.IsUnauthorized(err)
		})
	}
}

// tokenDaemonSet is the DaemonSet of deploy/token.yaml on the first node, with a directory in
// the place of /etc/evictd and the workload in the place of its image.
func tokenDaemonSet(c *cluster.Cluster, dir string) *apps.DaemonSet {
	c.T.Helper()
	root, err := sandbox.SourceRoot()
	if err != nil {
		c.T.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy/token.yaml"))
	if err != nil {
		c.T.Fatal(err)
	}
	set := &apps.DaemonSet{}
	if err := yaml.UnmarshalStrict(text, set); err != nil {
		c.T.Fatal(err)
	}
	pod := &set.Spec.Template.Spec
	pod.NodeSelector, pod.HostNetwork = map[string]string{v1.LabelHostname: c.Nodes[0].Name}, true
	container := &pod.Containers[0]
	container.Image, container.ImagePullPolicy, container.Command, container.Args = node.Workload, v1.PullNever, nil, []string{"copy /token/token /host/token"}
	for i := range pod.Volumes {
		if host := pod.Volumes[i].HostPath; host != nil {
			host.Path = dir
		}
	}
	return set
}

// clientWith is a client with a token.
func clientWith(c *cluster.Cluster, token []byte) kubernetes.Interface {
	c.T.Helper()
	admin, err := c.API.Config(apiserver.Admin)
	if err != nil {
		c.T.Fatal(err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = string(token)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.T.Fatal(err)
	}
	return client
}
