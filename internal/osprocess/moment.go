package osprocess

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Instant is an instant that another process can tell how long ago it was.
type Instant struct {
	// Boot is the kernel's id of this boot (random(4), boot_id).
	Boot string `json:"boot"`
	// Up is the time since then, which no change of the wall clock moves and which
	// goes on while the machine sleeps (CLOCK_BOOTTIME).
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

// Since is how long before m another moment was. Across boots only the wall clock
// tells; it is not known where that was set back so far that the other moment
// would be of this boot.
func (m Instant) Since(earlier Instant) (ago time.Duration, known bool) {
	if m.Boot == earlier.Boot {
		ago = m.Up - earlier.Up
		return ago, ago >= 0
	}
	ago = m.Wall.Sub(earlier.Wall)
	return ago, ago >= m.Up
}
