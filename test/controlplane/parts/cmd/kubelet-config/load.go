package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
)

// load takes the steps of NewKubeletCommand and loadConfigFile up to the validation of the configuration.
func (q *question) load() (*kubeletconfig.KubeletConfiguration, error) {
	c, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	if err := parse(q.Flags, c); err != nil {
		return nil, err
	}
	if q.Base != "" {
		if c, err = read(q.Base); err != nil {
			return nil, err
		}
		switch {
		case c.EvictionHard == nil:
			c.EvictionHard = maps.Clone(eviction.DefaultEvictionHard)
		case c.MergeDefaultEvictionSettings:
			hard := maps.Clone(eviction.DefaultEvictionHard)
			maps.Copy(hard, c.EvictionHard)
			c.EvictionHard = hard
		}
	}
	if q.DropIns != nil {
		if err := merge(c, q.DropIns); err != nil {
			return nil, err
		}
	}
	if q.Base != "" || q.DropIns != nil {
		if err := parse(q.Flags, c); err != nil {
			return nil, err
		}
	}
	c.FailCgroupV1 = false // the validation would look at this host
	if err := validation.ValidateKubeletConfiguration(c, utilfeature.DefaultFeatureGate); err != nil {
		return nil, err
	}
	return versioned(c)
}

// parse writes flags over a configuration.
func parse(flags []string, c *config.KubeletConfiguration) error {
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	options.NewKubeletFlags().AddFlags(set)
	options.AddKubeletConfigFlags(set, c)
	return set.Parse(flags)
}

func versioned(c *config.KubeletConfiguration) (*kubeletconfig.KubeletConfiguration, error) {
	v := &kubeletconfig.KubeletConfiguration{}
	return v, v1beta1.Convert_config_KubeletConfiguration_To_v1beta1_KubeletConfiguration(c, v, nil)
}

// merge is mergeKubeletConfigurations: each file is a merge patch (RFC 7386) of what came before it.
func merge(c *config.KubeletConfiguration, dropIns []string) error {
	v, err := versioned(c)
	if err != nil {
		return err
	}
	merged, err := json.Marshal(v)
	if err != nil {
		return err
	}
	for _, text := range dropIns {
		patch, err := readJSON(text)
		if err != nil {
			return err
		}
		if merged, err = jsonpatch.MergePatch(merged, patch); err != nil {
			return err
		}
	}
	v = &kubeletconfig.KubeletConfiguration{}
	if err := json.Unmarshal(merged, v); err != nil {
		return err
	}
	v1beta1.SetDefaults_KubeletConfiguration(v)
	return v1beta1.Convert_v1beta1_KubeletConfiguration_To_config_KubeletConfiguration(v, c, nil)
}

// file calls read with a loader of a file that holds the text.
func file[T any](text string, read func(configfiles.Loader) (T, error)) (result T, err error) {
	directory, err := os.MkdirTemp("", "kubelet-config")
	if err != nil {
		return result, err
	}
	defer os.RemoveAll(directory)
	path := filepath.Join(directory, "config")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return result, err
	}
	loader, err := configfiles.NewFsLoader(&utilfs.DefaultFs{}, path)
	if err != nil {
		return result, err
	}
	return read(loader)
}

func read(text string) (*config.KubeletConfiguration, error) {
	return file(text, func(l configfiles.Loader) (*config.KubeletConfiguration, error) {
		return l.Load(klog.NewContext(context.Background(), logr.Discard()))
	})
}

func readJSON(text string) ([]byte, error) {
	return file(text, func(l configfiles.Loader) ([]byte, error) {
		text, gvk, err := l.LoadIntoJSON()
		if err == nil && (gvk == nil || *gvk != kubeletconfig.SchemeGroupVersion.WithKind("KubeletConfiguration")) {
			err = fmt.Errorf("unknown apiVersion and kind %v", gvk)
		}
		return text, err
	})
}
