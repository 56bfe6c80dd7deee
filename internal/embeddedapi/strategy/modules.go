//go:build modulegraph

// The tag is never set. Kubernetes' go.mod asks for v0.0.0 of the modules of its own tree; the imports below make
// ours ask for their releases, so that `go list -m all` and `go mod tidy` find each of them.

package strategy

import (
	_ "k8s.io/cluster-bootstrap/token/api"
	_ "k8s.io/cri-streaming/pkg/streaming"
	_ "k8s.io/externaljwt/apis/v1"
	_ "k8s.io/kube-aggregator/pkg/apis/apiregistration"
	_ "k8s.io/kube-controller-manager/config/v1alpha1"
	_ "k8s.io/kube-proxy/config/v1alpha1"
	_ "k8s.io/kubectl/pkg/util/hash"
	_ "k8s.io/mount-utils"
	_ "k8s.io/pod-security-admission/api"
	_ "k8s.io/sample-apiserver/pkg/apis/wardle"
)
