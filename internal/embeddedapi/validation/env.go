package validation

import (
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkEnv checks the environment of a container.
func checkEnv(c *v1.Container, at *field.Path) (faults field.ErrorList) {
	for i := range c.Env {
		at := at.Child("env").Index(i)
		faults = append(faults, named(c.Env[i].Name, at.Child("name"), validation.IsRelaxedEnvVarName)...)
		faults = append(faults, checkValue(&c.Env[i], at.Child("valueFrom"))...)
	}
	for i, from := range c.EnvFrom {
		list, of, sources := at.Child("envFrom"), at.Child("envFrom").Index(i), 0
		if from.Prefix != "" {
			faults = append(faults, valid(from.Prefix, of.Child("prefix"), validation.IsRelaxedEnvVarName(from.Prefix))...)
		}
		if from.ConfigMapRef != nil {
			sources++
			faults = append(faults, named(from.ConfigMapRef.Name, of.Child("configMapRef", "name"), prefixOfName)...)
		}
		if from.SecretRef != nil {
			sources++
			faults = append(faults, named(from.SecretRef.Name, of.Child("secretRef", "name"), prefixOfName)...)
		}
		switch sources {
		case 0:
			faults = append(faults, field.Invalid(list, "", "must specify one of: `configMapRef` or `secretRef`"))
		case 2:
			faults = append(faults, field.Invalid(list, "", "may not have more than one field specified at a time"))
		}
	}
	return faults
}

func nameOfObject(name string) []string { return apivalidation.NameIsDNSSubdomain(name, false) }

func prefixOfName(name string) []string { return apivalidation.NameIsDNSSubdomain(name, true) }

// checkValue checks from where a variable has its value.
func checkValue(variable *v1.EnvVar, at *field.Path) (faults field.ErrorList) {
	from := variable.ValueFrom
	if from == nil {
		return nil
	}
	sources := 0
	if from.FieldRef != nil {
		sources++
		faults = append(faults, checkFieldRef(from.FieldRef, envFields, at.Child("fieldRef"))...)
	}
	if from.ResourceFieldRef != nil {
		sources++
		faults = append(faults, checkResourceRef(from.ResourceFieldRef, false, at.Child("resourceFieldRef"))...)
	}
	key := func(name, key string, at *field.Path) {
		sources++
		faults = append(faults, valid(name, at.Child("name"), nameOfObject(name))...)
		faults = append(faults, named(key, at.Child("key"), validation.IsConfigMapKey)...)
	}
	if r := from.ConfigMapKeyRef; r != nil {
		key(r.Name, r.Key, at.Child("configMapKeyRef"))
	}
	if r := from.SecretKeyRef; r != nil {
		key(r.Name, r.Key, at.Child("secretKeyRef"))
	}
	if from.FileKeyRef != nil {
		sources++
	}
	if sources != 1 || variable.Value != "" {
		faults = append(faults, field.Invalid(at, "", "must specify one source, and no `value`"))
	}
	return faults
}

// envFields and fileFields are the fields of a pod that its containers read.
var (
	envFields  = []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
	fileFields = []string{"metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid"}
	podFields  = append([]string{"metadata.labels", "metadata.annotations", "spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host"}, envFields...)
)

// subscript is a path with a key: metadata.labels['KEY'].
var subscript = regexp.MustCompile(`^(.+)\['(.*)'\]$`)

func checkFieldRef(ref *v1.ObjectFieldSelector, readable []string, at *field.Path) field.ErrorList {
	of := at.Child("fieldPath")
	if ref.FieldPath == "" {
		return given("", of)
	}
	keyed := subscript.FindStringSubmatch(ref.FieldPath)
	switch {
	case ref.APIVersion != "v1", keyed == nil && !slices.Contains(podFields, ref.FieldPath):
		return field.ErrorList{field.Invalid(of, ref.FieldPath, "is no field of a pod")}
	case keyed == nil:
		return known(ref.FieldPath, of, readable...)
	case keyed[1] == "metadata.annotations":
		return valid(keyed[2], at, validation.IsQualifiedName(strings.ToLower(keyed[2])))
	case keyed[1] == "metadata.labels":
		return valid(keyed[2], at, validation.IsQualifiedName(keyed[2]))
	}
	return field.ErrorList{field.Invalid(of, ref.FieldPath, "does not support subscript")}
}

func checkResourceRef(ref *v1.ResourceFieldSelector, inFile bool, at *field.Path) (faults field.ErrorList) {
	amounts := []string{"limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage"}
	huge := strings.HasPrefix(ref.Resource, "requests.hugepages-") || strings.HasPrefix(ref.Resource, "limits.hugepages-")
	switch {
	case inFile && ref.ContainerName == "":
		faults = append(faults, field.Required(at.Child("containerName"), ""))
	case !huge:
		faults = append(faults, supported(ref.Resource, at.Child("resource"), amounts...)...)
	}
	divisors := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	if strings.HasSuffix(ref.Resource, ".cpu") {
		divisors = []string{"1m", "1"}
	}
	if !ref.Divisor.IsZero() && (huge || slices.Contains(amounts, ref.Resource)) && !slices.Contains(divisors, ref.Divisor.String()) {
		faults = append(faults, field.Invalid(at.Child("divisor"), ref.Divisor.String(), "is no unit of this resource"))
	}
	return faults
}

// checkDownward checks a file with a field of the pod. Kubernetes leaves its number out of the paths.
func checkDownward(file *v1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	faults := append(given(file.Path, at.Child("path")), localPath(file.Path, at.Child("path"))...)
	switch {
	case file.FieldRef == nil && file.ResourceFieldRef == nil:
		faults = append(faults, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
	case file.FieldRef == nil:
		faults = append(faults, checkResourceRef(file.ResourceFieldRef, true, at.Child("resourceFieldRef"))...)
	default:
		faults = append(faults, checkFieldRef(file.FieldRef, fileFields, at.Child("fieldRef"))...)
		if file.ResourceFieldRef != nil {
			faults = append(faults, field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		}
	}
	return append(faults, mode(file.Mode, at.Child("mode"))...)
}
