package embeddedapi

import (
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// newReviews are the kinds of questions about users and rights. They are answered and not stored.
// Every known user may do everything, as with kube-apiserver's AlwaysAllow.
func newReviews() []*kind {
	authentication, authorization := authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion
	return []*kind{
		{GroupVersionKind: authentication.WithKind("TokenReview"), resource: "tokenreviews", singular: "tokenreview", review: reviewToken},
		{GroupVersionKind: authentication.WithKind("SelfSubjectReview"), resource: "selfsubjectreviews", singular: "selfsubjectreview", review: reviewSelf},
		{GroupVersionKind: authorization.WithKind("LocalSubjectAccessReview"), resource: "localsubjectaccessreviews", singular: "localsubjectaccessreview", namespaced: true, review: reviewAccess},
		{GroupVersionKind: authorization.WithKind("SelfSubjectAccessReview"), resource: "selfsubjectaccessreviews", singular: "selfsubjectaccessreview", review: reviewAccess},
		{GroupVersionKind: authorization.WithKind("SelfSubjectRulesReview"), resource: "selfsubjectrulesreviews", singular: "selfsubjectrulesreview", review: reviewRules},
		{GroupVersionKind: authorization.WithKind("SubjectAccessReview"), resource: "subjectaccessreviews", singular: "subjectaccessreview", review: reviewAccess},
	}
}

// review answers a question.
func (r *request) review() (int, runtime.Object, error) {
	object, err := r.object()
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, object, r.kind.review(r, object)
}

func reviewToken(r *request, object store.Object) error {
	review := object.(*authenticationv1.TokenReview)
	if review.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	review.Status = authenticationv1.TokenReviewStatus{}
	review.Status.User, review.Status.Authenticated = r.api.tokens.user(review.Spec.Token)
	return nil
}

func reviewSelf(r *request, object store.Object) (err error) {
	object.(*authenticationv1.SelfSubjectReview).Status.UserInfo, err = r.user()
	return err
}

func reviewRules(_ *request, object store.Object) error {
	review, all := object.(*authorizationv1.SelfSubjectRulesReview), []string{"*"}
	if review.Spec.Namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	review.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}},
		NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: all, NonResourceURLs: all}},
	}
	return nil
}

// reviewAccess follows the validation of Kubernetes' authorization API.
func reviewAccess(r *request, object store.Object) error {
	var (
		resource    *authorizationv1.ResourceAttributes
		nonResource *authorizationv1.NonResourceAttributes
		status      *authorizationv1.SubjectAccessReviewStatus
		faults      utilvalidation.ErrorList
		path        = utilvalidation.NewPath("spec")
	)
	subject := func(spec authorizationv1.SubjectAccessReviewSpec) {
		resource, nonResource = spec.ResourceAttributes, spec.NonResourceAttributes
		if spec.User == "" && len(spec.Groups) == 0 {
			faults = append(faults, utilvalidation.Invalid(path.Child("user"), spec.User, "at least one of user or group must be specified"))
		}
	}
	switch review := object.(type) {
	case *authorizationv1.SubjectAccessReview:
		subject(review.Spec)
		status = &review.Status
	case *authorizationv1.SelfSubjectAccessReview:
		resource, nonResource, status = review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes, &review.Status
	case *authorizationv1.LocalSubjectAccessReview:
		subject(review.Spec)
		status = &review.Status
		if resource != nil && resource.Namespace != review.Namespace {
			faults = append(faults, utilvalidation.Invalid(path.Child("resourceAttributes", "namespace"), resource.Namespace, "must match metadata.namespace"))
		}
		if nonResource != nil {
			faults = append(faults, utilvalidation.Invalid(path.Child("nonResourceAttributes"), nonResource, "disallowed on this kind of request"))
		}
	}
	if (resource == nil) == (nonResource == nil) {
		faults = append(faults, utilvalidation.Invalid(path, nonResource, "exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	meta := *fieldOf(object, "ObjectMeta").Addr().Interface().(*metav1.ObjectMeta)
	meta.Namespace, meta.ManagedFields = "", nil
	if !apiequality.Semantic.DeepEqual(meta, metav1.ObjectMeta{}) {
		faults = append(faults, utilvalidation.Invalid(utilvalidation.NewPath("metadata"), meta, "must be empty"))
	}
	*status = authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	if len(faults) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: r.kind.Group}, "", faults)
	}
	return nil
}
