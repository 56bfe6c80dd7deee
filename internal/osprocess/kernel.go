package osprocess

import (
	"fmt"
	"os"
	"strings"
)

// KernelRelease is the kernel's release; "" if it cannot be read.
func KernelRelease() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(text))
}

// KernelIsAtLeast says whether the kernel is of a version or a later one.
func KernelIsAtLeast(major, minor int) bool {
	var is, isMinor int
	fmt.Sscanf(KernelRelease(), "%d.%d", &is, &isMinor)
	return is > major || is == major && isMinor >= minor
}
