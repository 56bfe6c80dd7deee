package secureserving

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	expiring "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
)

const (
	// reviewTimeout is the timeout of a review, as in kube-scheduler.
	reviewTimeout = 10 * time.Second
	// keptReviews and keptSize, in bytes, bound the SubjectAccessReviews that are used
	// again: a client chooses the path.
	keptReviews, keptSize = 1024, 4096
)

// authorization decides whether a client may send a request to a path.
type authorization struct {
	allowTTL, denyTTL time.Duration
	always            authorizer.UnconditionalAuthorizer // paths
	client            kubernetes.Interface               // nil: only paths and system:masters are allowed
	reviews           *expiring.LRUExpireCache           // status by spec in JSON
}

// allows returns the reason with which a request is denied.
func (a *authorization) allows(ctx context.Context, by user.Info, verb, path string) (allowed bool, reason string, err error) {
	if slices.Contains(by.GetGroups(), user.SystemPrivilegedGroup) {
		return true, "", nil
	}
	decision, _, err := a.always.Authorize(ctx, authorizer.AttributesRecord{User: by, Verb: verb, Path: path})
	if err != nil || decision == authorizer.DecisionAllow || a.client == nil {
		return decision == authorizer.DecisionAllow, "", err
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: by.GetName(), UID: by.GetUID(), Groups: by.GetGroups(), Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
	}
	for key, values := range by.GetExtra() {
		spec.Extra[key] = values
	}
	status, err := a.review(ctx, &spec)
	if err != nil {
		return false, "", err
	}
	return status.Allowed && !status.Denied, status.Reason, nil
}

func (a *authorization) review(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	key := string(encoded)
	if kept, ok := a.reviews.Get(key); ok {
		return kept.(authorizationv1.SubjectAccessReviewStatus), nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: *spec}, metav1.CreateOptions{})
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, fmt.Errorf("review the access of %s: %w", spec.User, err)
	}
	ttl := a.denyTTL
	if review.Status.Allowed {
		ttl = a.allowTTL
	}
	if len(key) <= keptSize {
		a.reviews.Add(key, review.Status, ttl)
	}
	return review.Status, nil
}
