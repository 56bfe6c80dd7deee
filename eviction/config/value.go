package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/eviction"
)

// disabled are the only two values that disable a threshold.
func disabled(text string) bool { return text == "0%" || text == "100%" }

// page is the least amount of memory that the kernel gives out, and the usual block of a file system, bytes.
const page = 4096

// value parses a threshold as the kubelet does, but refuses 100% and NaN, which the
// kubelet accepts by accident.
func (c *compiler) value(path *field.Path, s eviction.Signal, text string) eviction.Value {
	if !strings.HasSuffix(text, "%") {
		v := c.quantity(path, text, true)
		if s.Requestable() && v.Amount > 0 && v.Amount < page {
			c.warn(path, "%q is less than a page, %d bytes: the threshold acts when nothing is left; expected a suffix such as Mi", text, page)
		}
		return v
	}
	percent, ok := c.percent(path, text)
	switch {
	case !ok:
	case percent < 0 || percent > 100:
		c.invalid(path, text, "a percentage must be between 0% and 100%")
	case percent == 100:
		c.invalid(path, text, "would evict until nothing is used; write 100% or 0% to disable the threshold")
	case percent == 0:
		c.warn(path, "%q never acts; write 0%% to disable the threshold", text)
	default:
		return eviction.Value{Fraction: float32(percent) / 100}
	}
	return eviction.Value{}
}

// reclaim parses a minimum reclaim: zero is valid as a quantity, and more than the
// capacity is not checked.
func (c *compiler) reclaim(path *field.Path, text string) eviction.Value {
	if !strings.HasSuffix(text, "%") {
		return c.quantity(path, text, false)
	}
	percent, ok := c.percent(path, text)
	switch {
	case !ok:
	case percent <= 0:
		c.invalid(path, text, "a percentage to reclaim must be above 0%")
	default:
		if percent > 100 {
			c.warn(path, "%q asks for more than the capacity: the threshold stays active for ever once it has acted", text)
		}
		return eviction.Value{Fraction: float32(percent) / 100}
	}
	return eviction.Value{}
}

func (c *compiler) percent(path *field.Path, text string) (float64, bool) {
	number := strings.TrimRight(text, "%")
	// The kubelet parses and divides in 32 bits.
	percent, err := strconv.ParseFloat(number, 32)
	if err != nil || math.IsNaN(percent) || math.IsInf(percent, 0) {
		c.invalid(path, text, "not a percentage such as 10%")
		return 0, false
	}
	if plain := strconv.FormatFloat(percent, 'f', -1, 32); strings.ContainsAny(number, "+eExX_") || len(text)-len(number) > 1 {
		c.warn(path, "%q is read as %s%%", text, plain)
	}
	return percent, true
}

func (c *compiler) quantity(path *field.Path, text string, positive bool) eviction.Value {
	q, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		c.invalid(path, text, "not a quantity: "+err.Error())
	case q.Sign() < 0:
		c.invalid(path, text, "must not be negative")
	case positive && q.Sign() == 0:
		c.invalid(path, text, "must be positive")
	case q.CmpInt64(math.MaxInt64) > 0:
		c.invalid(path, text, "must be below 2^63")
	}
	if err == nil && q.CmpInt64(q.Value()) != 0 {
		c.warn(path, "%q is no whole number and is read as %d; m means a thousandth", text, q.Value())
	}
	return eviction.Value{Amount: q.Value()}
}

// ParseThresholds reads the kubelet's flag grammar for thresholds,
// "signal<value,signal<value", into a map as files hold it. A stall acts above its value: "memory.stall>40%".
func ParseThresholds(text string) (map[string]string, error) {
	stall := eviction.MemoryStall.String()
	parsed, err := parseMap(strings.ReplaceAll(text, stall+">", stall+"<"), "<")
	if _, given := parsed[stall]; given && !strings.Contains(text, stall+">") {
		return nil, fmt.Errorf("%q: %s acts above its value: expected %s>value", text, stall, stall)
	}
	return parsed, err
}

// ParseSettings reads the kubelet's flag grammar for everything else,
// "name=value,name=value". The last value of a name counts.
func ParseSettings(text string) (map[string]string, error) { return parseMap(text, "=") }

func parseMap(text, separator string) (map[string]string, error) {
	parsed := map[string]string{}
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		name, value, found := strings.Cut(entry, separator)
		if name = strings.TrimSpace(name); !found || name == "" {
			return nil, fmt.Errorf("%q: expected name%svalue", entry, separator)
		}
		parsed[name] = strings.TrimSpace(value)
	}
	return parsed, nil
}
