package config

const (
	minFeasibleNodes   = 100 // lower bound
	minAdaptivePercent = 5
	maxAdaptivePercent = 50
)

// NumFeasibleNodesToFind is how many feasible nodes of n suffice. percent 0 is
// adaptive: 50 % minus 1 % for each 125 nodes, at least 5 %. Source:
// kube-scheduler's numFeasibleNodesToFind.
func NumFeasibleNodesToFind(n int, percent int32) int {
	share := int(percent)
	if share == 0 {
		share = max(maxAdaptivePercent-n/125, minAdaptivePercent)
	}
	return min(n, max(n*share/100, minFeasibleNodes))
}
