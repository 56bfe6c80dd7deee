package config

import "github.com/evictd/evictd/eviction"

// CheckCapacity is a stand-in until the coretests branch is merged.
func (c *Config) CheckCapacity(observed eviction.Observations) (warnings []string, err error) {
	return nil, nil
}
