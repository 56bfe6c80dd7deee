package embeddedapi_test

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReviewsAreAnsweredAndNotStored(t *testing.T) {
	s := serve(t, "")
	client, ctx, options := s.client(t), t.Context(), metav1.CreateOptions{}
	resource := &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "get", Resource: "pods"}
	access := must[*authorizationv1.SubjectAccessReview](t)(client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "jane", ResourceAttributes: resource}}, options))
	self := must[*authorizationv1.SelfSubjectAccessReview](t)(client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: resource}}, options))
	within := must[*authorizationv1.LocalSubjectAccessReview](t)(client.AuthorizationV1().LocalSubjectAccessReviews("default").Create(ctx,
		&authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "jane", ResourceAttributes: resource}}, options))
	rules := must[*authorizationv1.SelfSubjectRulesReview](t)(client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx,
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}, options))
	if !access.Status.Allowed || !self.Status.Allowed || !within.Status.Allowed || len(rules.Status.ResourceRules) != 1 {
		t.Errorf("answers: %+v, %+v, %+v, %+v", access.Status, self.Status, within.Status, rules.Status)
	}
	me := must[*authenticationv1.SelfSubjectReview](t)(client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, options))
	if me.Status.UserInfo.Username != "system:admin" {
		t.Errorf("a client on this host is %+v", me.Status.UserInfo)
	}
	token := must[*authenticationv1.TokenReview](t)(client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x"}}, options))
	if token.Status.Authenticated {
		t.Error("an unknown token is known")
	}
	_, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{}, options)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "at least one of user or group must be specified") || !strings.Contains(err.Error(), "exactly one of") {
		t.Errorf("an empty review: %v", err)
	}
	if got := s.call(t, "GET", "/apis/authentication.k8s.io/v1/tokenreviews", ""); got.code != 405 {
		t.Errorf("a list of reviews: %d %s", got.code, got.body)
	}
}
