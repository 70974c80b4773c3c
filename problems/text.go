package problems

import (
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// MaxQuoted is how much of a value a message repeats, in bytes.
const MaxQuoted = 64

// Quote puts s in quotes on one line and truncates it.
func Quote(s string) string {
	if len(s) > MaxQuoted {
		return strconv.Quote(s[:MaxQuoted]) + "…"
	}
	return strconv.Quote(s)
}

// Duration is d as people write it: 2m where Go says 2m0s.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Minutes is a duration in whole minutes, at least one.
func Minutes(d time.Duration) string { return Duration(max(time.Minute, d.Round(time.Minute))) }

// Bytes is b as a Kubernetes quantity.
func Bytes(b uint64) string {
	switch {
	case b > math.MaxInt64:
		return strconv.FormatUint(b, 10)
	case b%1024 == 0:
		return resource.NewQuantity(int64(b), resource.BinarySI).String()
	default:
		return resource.NewQuantity(int64(b), resource.DecimalSI).String()
	}
}
