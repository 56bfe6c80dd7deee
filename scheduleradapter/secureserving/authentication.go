package secureserving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/evictd/evictd/internal/kubeclient"
)

// delegate is a client of the API server that reviews requests. It is nil where the
// flag has no file and the process is in no cluster.
func delegate(flag, kubeconfig, without string, log *slog.Logger) (kubernetes.Interface, error) {
	config, err := kubeclient.Config(kubeconfig, "")
	if err != nil && kubeconfig == "" {
		log.Warn("--"+flag+" is not set", "effect", without)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	config.UserAgent = "evictd-scheduler"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return client, nil
}

// clientCA is a certificate authority of clients that is read again when it changes.
type clientCA interface {
	dynamiccertificates.CAContentProvider
	dynamiccertificates.ControllerRunner
}

// clientCA is that of --client-ca-file or of the ConfigMap in which the API server
// publishes its own; nil: there is none.
func (o *Options) clientCA(client kubernetes.Interface) (clientCA, error) {
	switch {
	case o.clientCAFile != "":
		return dynamiccertificates.NewDynamicCAContentFromFile("client-ca", o.clientCAFile)
	case o.skipLookup || client == nil:
		return nil, nil
	}
	return dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", metav1.NamespaceSystem, "extension-apiserver-authentication", "client-ca-file", client)
}

// proxyCA is that of --requestheader-client-ca-file; nil: there is none.
func (o *Options) proxyCA() (clientCA, error) {
	if o.proxy.caFile == "" {
		return nil, nil
	}
	return dynamiccertificates.NewDynamicCAContentFromFile("front-proxy-ca", o.proxy.caFile)
}

// authenticator identifies a client by the headers of a front proxy, its certificate or
// its token. A client without these is system:anonymous.
func (o *Options) authenticator(client kubernetes.Interface, clients, proxies clientCA) authenticator.Request {
	var by []authenticator.Request
	if proxies != nil {
		p := &o.proxy
		by = append(by, headerrequest.NewDynamicVerifyOptionsSecure(
			proxies.VerifyOptions, headerrequest.StaticStringSlice(p.allowedNames), headerrequest.StaticStringSlice(p.usernames),
			headerrequest.StaticStringSlice(p.uids), headerrequest.StaticStringSlice(p.groups), headerrequest.StaticStringSlice(p.extraPrefixes)))
	}
	if clients != nil {
		by = append(by, x509.NewDynamic(clients.VerifyOptions, x509.CommonNameUserConversion))
	}
	if client != nil {
		by = append(by, bearertoken.New(cache.New(reviewTokens(client.AuthenticationV1().TokenReviews()), false, o.tokenTTL, o.tokenTTL)))
	}
	return union.NewFailOnError(group.NewAuthenticatedGroupAdder(union.New(by...)), anonymous.NewAuthenticator(nil))
}

func reviewTokens(reviews authenticationclient.TokenReviewInterface) authenticator.TokenFunc {
	return func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		review, err := reviews.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		switch {
		case err != nil:
			return nil, false, fmt.Errorf("review a token: %w", err)
		case review.Status.Error != "":
			return nil, false, errors.New(review.Status.Error)
		case !review.Status.Authenticated:
			return nil, false, nil
		}
		reviewed := review.Status.User
		extra := map[string][]string{}
		for key, values := range reviewed.Extra {
			extra[key] = values
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: reviewed.Username, UID: reviewed.UID, Groups: reviewed.Groups, Extra: extra}}, true, nil
	}
}
