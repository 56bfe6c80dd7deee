package config

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/evictd/evictd/internal/manifest"
)

// Load reads a configuration file: an EvictdConfiguration strictly, or a
// KubeletConfiguration as the kubelet reads it. Of the latter it uses the fields of eviction,
// reserved resources and image collection, and those that say where the kubelet keeps things. The error joins every fault; the other fields are read, so that Compile can
// find their faults.
func Load(data []byte) (EvictdConfiguration, error) {
	document, err := manifest.One(data, Kind+" or KubeletConfiguration")
	if err != nil {
		return EvictdConfiguration{}, err
	}
	about, err := document.Type()
	if err != nil {
		return EvictdConfiguration{}, err
	}
	var c EvictdConfiguration
	switch about {
	case metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}:
		err = document.Decode(&c)
	case kubeletType:
		var k kubelet.KubeletConfiguration
		var ignored []error
		ignored, err = document.DecodeLeniently(&k)
		fillHard(&k)
		err = errors.Join(err, checkKubelet(&k).ToAggregate())
		c = fromKubelet(&k)
		for _, what := range ignored {
			c.warnings = append(c.warnings, what.Error()+": ignored, as by the kubelet")
		}
	default:
		err = fmt.Errorf("apiVersion %q, kind %q: expected %s %s or %s KubeletConfiguration",
			about.APIVersion, about.Kind, APIVersion, Kind, kubelet.SchemeGroupVersion)
	}
	return c, errors.Join(manifest.Faults(err)...)
}
