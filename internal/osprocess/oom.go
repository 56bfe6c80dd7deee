package osprocess

import (
	"fmt"
	"os"
)

// ResetOOMScore lets the kernel kill this process like any other when memory runs
// out, whatever its parent's score was.
func ResetOOMScore() error {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0); err != nil {
		return fmt.Errorf("set own oom_score_adj: %w", err)
	}
	return nil
}
