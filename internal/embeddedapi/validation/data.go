package validation

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ConfigMapSize refuses data that is too large for one object.
func ConfigMapSize(c *v1.ConfigMap) field.ErrorList {
	size := 0
	for _, text := range c.Data {
		size += len(text)
	}
	for _, bytes := range c.BinaryData {
		size += len(bytes)
	}
	return tooLarge(size, field.NewPath(""))
}

func tooLarge(size int, at *field.Path) field.ErrorList {
	if size <= v1.MaxSecretSize {
		return nil
	}
	return field.ErrorList{field.TooLong(at, "", v1.MaxSecretSize)}
}

// SecretData checks the size of a secret, and that it has what its type says.
func SecretData(s *v1.Secret) field.ErrorList {
	at, size := field.NewPath("data"), 0
	for _, bytes := range s.Data {
		size += len(bytes)
	}
	faults := tooLarge(size, at)
	has := func(keys ...string) {
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				faults = append(faults, field.Required(at.Key(key), ""))
			}
		}
	}
	file := func(key string) {
		content, ok := s.Data[key]
		if !ok {
			has(key)
		} else if err := json.Unmarshal(content, &map[string]any{}); err != nil {
			faults = append(faults, field.Invalid(at.Key(key), "<secret contents redacted>", err.Error()))
		}
	}
	switch s.Type {
	case v1.SecretTypeServiceAccountToken:
		faults = append(faults, given(s.Annotations[v1.ServiceAccountNameKey], field.NewPath("metadata", "annotations").Key(v1.ServiceAccountNameKey))...)
	case v1.SecretTypeDockercfg:
		file(v1.DockerConfigKey)
	case v1.SecretTypeDockerConfigJson:
		file(v1.DockerConfigJsonKey)
	case v1.SecretTypeBasicAuth:
		_, user := s.Data[v1.BasicAuthUsernameKey]
		if _, password := s.Data[v1.BasicAuthPasswordKey]; !user && !password {
			has(v1.BasicAuthUsernameKey, v1.BasicAuthPasswordKey)
		}
	case v1.SecretTypeSSHAuth:
		faults = append(faults, given(string(s.Data[v1.SSHAuthPrivateKey]), at.Key(v1.SSHAuthPrivateKey))...)
	case v1.SecretTypeTLS:
		has(v1.TLSCertKey, v1.TLSPrivateKeyKey)
	}
	return faults
}
