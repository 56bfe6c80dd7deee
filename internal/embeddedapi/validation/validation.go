// Package validation finds what kube-apiserver refuses in the objects that the embedded API serves. It follows
// Kubernetes' pkg/apis/*/validation field by field, for what Linux nodes run: the paths and the reasons of the faults are
// the same, the texts are not. It does not look at plugins of single storage vendors, fields of Windows, Endpoints and the
// status of ResourceClaims. It compiles no expressions, changes nothing and sets no defaults. Package admission has the checks that evictd-scheduler
// simulate needs, too.
package validation

import (
	"math"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// supported refuses a value that is none of those that are known, and an empty one as a missing field.
func supported[T ~string](value T, at *field.Path, known ...T) field.ErrorList {
	switch {
	case slices.Contains(known, value):
		return nil
	case value == "":
		return field.ErrorList{field.Required(at, "")}
	}
	return field.ErrorList{field.NotSupported(at, value, known)}
}

// known refuses a value, also an empty one, that is none of those that are known.
func known[T ~string](value T, at *field.Path, all ...T) field.ErrorList {
	if slices.Contains(all, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, all)}
}

// optional is known for a field that may be nil.
func optional[T ~string](value *T, at *field.Path, all ...T) field.ErrorList {
	if value == nil {
		return nil
	}
	return known(*value, at, all...)
}

// within refuses a number out of a range.
func within[T ~int32 | ~int64](n, least, most T, at *field.Path) field.ErrorList {
	if least <= n && n <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(at, n, validation.InclusiveRangeError(int(least), int(most)))}
}

// between is within for a field that may be nil.
func between[T ~int32 | ~int64](n *T, least, most T, at *field.Path) field.ErrorList {
	if n == nil {
		return nil
	}
	return within(*n, least, most, at)
}

func notNegative[T ~int32 | ~int64](n T, at *field.Path) field.ErrorList {
	if n >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, n, "must be greater than or equal to 0")}
}

// valid refuses a value for each reason.
func valid(value any, at *field.Path, reasons []string) (faults field.ErrorList) {
	for _, why := range reasons {
		faults = append(faults, field.Invalid(at, value, why))
	}
	return faults
}

// given refuses an empty text.
func given(text string, at *field.Path) field.ErrorList {
	if text != "" {
		return nil
	}
	return field.ErrorList{field.Required(at, "")}
}

// named refuses an empty text and one that is no name.
func named(text string, at *field.Path, reasons func(string) []string) field.ErrorList {
	if text == "" {
		return given(text, at)
	}
	return valid(text, at, reasons(text))
}

// below refuses a path that leaves its directory.
func below(target string, at *field.Path) (faults field.ErrorList) {
	if path.IsAbs(target) {
		faults = append(faults, field.Invalid(at, target, "must be a relative path"))
	}
	return append(faults, noBacksteps(target, at)...)
}

func noBacksteps(target string, at *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(target, "/"), "..") {
		return field.ErrorList{field.Invalid(at, target, "must not contain '..'")}
	}
	return nil
}

// localPath is below, and no name that begins with two dots, which the kubelet uses.
func localPath(target string, at *field.Path) field.ErrorList {
	faults := below(target, at)
	if strings.HasPrefix(target, "..") && !strings.HasPrefix(target, "../") {
		faults = append(faults, field.Invalid(at, target, "must not start with '..'"))
	}
	return faults
}

// mode is the permission of a file.
func mode(bits *int32, at *field.Path) field.ErrorList { return between(bits, 0, 0o777, at) }

// id is that of a user or a group.
func id(n *int64, at *field.Path) field.ErrorList { return between(n, 0, math.MaxInt32, at) }
