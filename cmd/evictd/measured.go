package main

import (
	"context"

	"github.com/evictd/evictd/internal/serve"
)

// measuredFindings are the signals whose thresholds the running evictd cannot evaluate.
func measuredFindings(ctx context.Context, client *serve.Client) (findings []finding) {
	status, err := standing(ctx, client)
	if err != nil {
		return nil
	}
	for _, s := range status.Signals {
		if s.Unmeasured != "" {
			findings = append(findings, finding{Name: "threshold of " + s.Name, Is: s.Unmeasured, Lost: "nothing is evicted for " + s.Name})
		}
	}
	return findings
}
