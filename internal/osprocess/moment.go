package osprocess

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Instant is a point in time that another process can compare with its own clocks.
type Instant struct {
	// Boot is the kernel's id of this boot (random(4), boot_id).
	Boot string `json:"boot"`
	// Up is the time since boot, independent of the wall clock and with suspended time
	// (CLOCK_BOOTTIME).
	Up   time.Duration `json:"up"`
	Wall time.Time     `json:"wall"`
}

// Now reads the clocks.
func Now() (Instant, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Instant{}, fmt.Errorf("find the boot: %w", err)
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return Instant{}, fmt.Errorf("read the clock of this boot: %w", err)
	}
	return Instant{strings.TrimSpace(string(boot)), time.Duration(up.Nano()), time.Now().Round(0)}, nil
}

// Since is how long before m another instant was. After a reboot it uses the wall
// clock, and is not known where that was set back before the other instant.
func (m Instant) Since(earlier Instant) (ago time.Duration, known bool) {
	if m.Boot == earlier.Boot {
		ago = m.Up - earlier.Up
		return ago, ago >= 0
	}
	ago = m.Wall.Sub(earlier.Wall)
	return ago, ago >= m.Up
}
