package config

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/eviction"
)

// CheckCapacity compares the thresholds with the observed capacities of a node. The
// error is a field.ErrorList's aggregate of the thresholds that are not below the
// capacity of their signal: they would evict every pod. The warnings are of thresholds
// that are never cleared once met. An unknown capacity is not compared.
func (c *Config) CheckCapacity(observed eviction.Observations) (warnings []string, err error) {
	var faults field.ErrorList
	for _, s := range c.settings {
		o := observed[s.Signal]
		capacity, known := o.Capacity.Get()
		if !known || capacity == 0 {
			continue
		}
		required, _ := s.Value.Of(o)
		reclaim, _ := s.MinReclaim.Of(o)
		switch {
		case required >= capacity:
			faults = append(faults, field.Invalid(s.path, s.FormatValue(),
				fmt.Sprintf("not below the capacity of %v, %s", s.Signal, s.Signal.Quantity(capacity))))
		case reclaim >= capacity-required:
			warnings = append(warnings, fmt.Sprintf("%v: %s and the minimum reclaim, %s, are not below the capacity of %v, %s: the threshold stays active for ever once it has acted",
				s.path, s.FormatValue(), s.FormatMinReclaim(), s.Signal, s.Signal.Quantity(capacity)))
		}
	}
	return warnings, faults.ToAggregate()
}
