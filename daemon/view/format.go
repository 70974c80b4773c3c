package view

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Unknown is shown where there is no measurement. It is never 0.
const Unknown = "–"

// Optional is the formatted value, or Unknown.
func Optional[T any](o snapshot.Opt[T], format func(T) string) string {
	v, ok := o.Get()
	if !ok {
		return Unknown
	}
	return format(v)
}

// Bytes of memory in binary units: 1.5 GiB.
func Bytes(n float64) string {
	return scaled(n, 1024, "B", "KiB", "MiB", "GiB", "TiB", "PiB")
}

// Size of a disk in decimal units, as its vendor writes it: 1.9 TB.
func Size(n float64) string {
	return scaled(n, 1000, "B", "kB", "MB", "GB", "TB", "PB")
}

// ByteRate of a disk: 12.5 MB/s. The unit is never smaller than kB/s.
func ByteRate(bytesPerSecond float64) string {
	return scaled(bytesPerSecond/1000, 1000, "kB/s", "MB/s", "GB/s", "TB/s")
}

// BitRate of a NIC, in the unit that links are sold by: 9.4 Gbit/s. The unit
// is never smaller than kbit/s.
func BitRate(bytesPerSecond float64) string {
	return scaled(bytesPerSecond*8/1000, 1000, "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s")
}

// scaled writes n in the largest unit that leaves it at least 1.
func scaled(n, base float64, units ...string) string {
	i := 0
	for i < len(units)-1 && math.Round(n*10)/10 >= base {
		n /= base
		i++
	}
	return digits(n) + " " + units[i]
}

// digits has one decimal below 100, and none from 100 on and for 0.
func digits(n float64) string {
	if n == 0 || n >= 99.95 {
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	if n > 0 && n < 0.05 {
		return "<0.1"
	}
	return strconv.FormatFloat(n, 'f', 1, 64)
}

// Ratio as a percentage: 12.3 %. A small ratio is <0.1 %, never 0.
func Ratio(r float64) string { return digits(100*r) + " %" }

// Number is a count or a number of things per second: 0.4, 1234, 12.3 k.
func Number(n float64) string {
	switch {
	case n < 99.95 && n != math.Trunc(n):
		return digits(n)
	case n < 9999.5:
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	return scaled(n/1000, 1000, "k", "M", "G", "T")
}

// Count of things.
func Count(n uint64) string { return Number(float64(n)) }

// Seconds of latency: 250 µs, 12.5 ms, 1.2 s.
func Seconds(s float64) string {
	return scaled(s*1e6, 1000, "µs", "ms", "s")
}

// Age is a duration in its two largest units: 3 min 20 s.
func Age(d time.Duration) string {
	s := int64(max(0, d) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return twoUnits(s/60, "min", s%60, "s")
	case s < 24*3600:
		return twoUnits(s/3600, "h", s/60%60, "min")
	}
	return twoUnits(s/(24*3600), "d", s/3600%24, "h")
}

// Clock is a time of day, in UTC like everything here: 12:02:05.
func Clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// Stamp is a day and its time, in UTC.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

func twoUnits(a int64, unit string, b int64, small string) string {
	if b == 0 {
		return fmt.Sprintf("%d %s", a, unit)
	}
	return fmt.Sprintf("%d %s %d %s", a, unit, b, small)
}

// Quantity is a value in a unit that plugins use.
func Quantity(v float64, unit string) string {
	switch unit {
	case "ratio":
		return Ratio(v)
	case "bytes":
		return Bytes(v)
	case "seconds":
		return Seconds(v)
	case "":
		return Number(v)
	}
	return Number(v) + " " + Printable(unit)
}

// Printable escapes what a terminal or a reader could misinterpret: control
// characters, direction marks, invalid UTF-8. Names of devices and cgroups are
// untrusted input.
func Printable(s string) string {
	if strings.IndexFunc(s, unprintable) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case !unprintable(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[n:]
	}
	return b.String()
}

// WriteRows writes rows with aligned columns, and makes them printable.
func WriteRows(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i := range row {
			cells[i] = Printable(row[i])
		}
		if _, err := fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

// Clip is Printable within maxClip characters: for names that any process can choose.
func Clip(s string) string {
	const maxClip = 64
	r := []rune(Printable(s[:min(len(s), 4*maxClip)]))
	if len(r) <= maxClip && len(s) <= 4*maxClip {
		return string(r)
	}
	return string(r[:min(len(r), maxClip)]) + "…"
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
