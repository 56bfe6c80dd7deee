package config

const (
	minFeasibleNodes   = 100 // never look for fewer
	minAdaptivePercent = 5
	maxAdaptivePercent = 50
)

// NumFeasibleNodesToFind is how many feasible nodes of n end the search for more.
// Percent 0 stands for the adaptive share, 50 % less one for every 125 nodes and
// not below 5 %. Source: kube-scheduler's percentageOfNodesToScore.
func NumFeasibleNodesToFind(n int, percent int32) int {
	share := int(percent)
	if share == 0 {
		share = max(maxAdaptivePercent-n/125, minAdaptivePercent)
	}
	return min(n, max(n*share/100, minFeasibleNodes))
}
