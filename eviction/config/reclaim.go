package config

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/eviction/reclaim"
)

const defaultImageMinimumAge = 2 * time.Minute

// Values of imageGCPressureMode.
const (
	reclaimDeficit = "deficit"
	reclaimAll     = "all"
)

// reclaimPolicy reads what the kubelet calls image and container collection.
func (c *compiler) reclaimPolicy(file *EvictdConfiguration) reclaim.Policy {
	p := reclaim.Policy{
		ContainerMinAge:    c.duration("minimumContainerTTLDuration", file.MinimumContainerTTLDuration.Duration, 0),
		MaxPerPodContainer: count(file.MaximumDeadContainersPerContainer, 1), MaxContainers: count(file.MaximumDeadContainers, -1),
		ImageMinAge: c.duration("imageMinimumGCAge", file.ImageMinimumGCAge.Duration, defaultImageMinimumAge),
		ImageMaxAge: c.duration("imageMaximumGCAge", file.ImageMaximumGCAge.Duration, 0),
		HighPercent: c.percentage("imageGCHighThresholdPercent", file.ImageGCHighThresholdPercent, 85),
		LowPercent:  c.percentage("imageGCLowThresholdPercent", file.ImageGCLowThresholdPercent, 80),
		Everything:  file.ImageGCPressureMode == reclaimAll,
		Keep:        file.ImageGCKeep,
	}
	if p.LowPercent >= p.HighPercent {
		c.invalid(c.at("imageGCLowThresholdPercent"), p.LowPercent, fmt.Sprintf("must be lower than imageGCHighThresholdPercent, %d", p.HighPercent))
	}
	if p.ImageMaxAge > 0 && p.ImageMaxAge <= p.ImageMinAge {
		c.invalid(c.at("imageMaximumGCAge"), p.ImageMaxAge.String(), "must be above imageMinimumGCAge, "+p.ImageMinAge.String())
	}
	if mode := file.ImageGCPressureMode; mode != "" && mode != reclaimDeficit && mode != reclaimAll {
		c.faults = append(c.faults, field.NotSupported(c.at("imageGCPressureMode"), mode, []string{reclaimDeficit, reclaimAll}))
	}
	for i, pattern := range file.ImageGCKeep {
		if pattern == "" || pattern == "*" {
			c.invalid(c.at("imageGCKeep").Index(i), pattern, "expected an image's full reference, or its beginning and *")
		}
	}
	return p
}

func count(given *int32, otherwise int) int {
	if given == nil {
		return otherwise
	}
	return int(*given)
}

func (c *compiler) percentage(name string, given *int32, otherwise int64) int64 {
	if given == nil {
		return otherwise
	}
	if *given < 0 || *given > 100 {
		c.invalid(c.at(name), *given, "must be between 0 and 100")
	}
	return int64(*given)
}
