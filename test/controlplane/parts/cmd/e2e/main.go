// E2e runs Kubernetes' own end-to-end specs of [sig-scheduling], of [sig-node] [DRA] and of
// the API against a cluster, with the flags of Kubernetes' e2e.test, of which it is a part.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/testinit" // flags of klog, which the framework reads
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	e2enode "k8s.io/kubernetes/test/e2e/framework/node"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	testingmanifests "k8s.io/kubernetes/test/e2e/testing-manifests"

	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	_ "k8s.io/kubernetes/test/e2e/apps"
	_ "k8s.io/kubernetes/test/e2e/common/node"
	_ "k8s.io/kubernetes/test/e2e/dra"
	_ "k8s.io/kubernetes/test/e2e/feature"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/e2e/instrumentation"
	_ "k8s.io/kubernetes/test/e2e/node"
	_ "k8s.io/kubernetes/test/e2e/scheduling"
	_ "k8s.io/kubernetes/test/utils/ktesting/format"
)

// outcome is where Ginkgo reports a failed suite.
type outcome struct{ failed bool }

func (o *outcome) Fail() { o.failed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(testingmanifests.GetE2ETestingManifestsFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	logs.InitLogs()
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	o := &outcome{}
	ginkgo.RunSpecs(o, "evictd", suite, reporter)
	logs.FlushLogs()
	if o.failed {
		os.Exit(1)
	}
}

// As e2e.test does before its first spec.
var _ = ginkgo.BeforeSuite(func(ctx context.Context) {
	client, err := framework.LoadClientset()
	framework.ExpectNoError(err, "make the client")
	framework.ExpectNoError(e2enode.WaitForAllNodesSchedulable(ctx, client, framework.NewTimeoutContext().NodeSchedulable))
	nodes, err := e2enode.GetReadySchedulableNodes(ctx, client)
	framework.ExpectNoError(err, "list the nodes")
	framework.TestContext.CloudConfig.NumNodes = len(nodes.Items)
	framework.TestContext.IPFamily = "ipv4"
})
