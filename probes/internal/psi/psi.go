// Package psi parses pressure files (kernel Documentation/accounting/psi.rst)
// and says why one cannot be read. The node has them in /proc/pressure, a cgroup
// of v2 in its directory.
package psi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Reasons why PSI is absent, one for each remedy. A kernel that hides the files
// while PSI is off looks like one without PSI.
const (
	WhySwitchedOff  = "PSI is disabled (boot with psi=1)"
	WhyNone         = "no PSI (kernel built without CONFIG_PSI, or booted without psi=1)"
	WhyOffForCgroup = "PSI is disabled for this cgroup (cgroup.pressure is 0)"
	whyForbidden    = "no permission to read PSI"
)

var (
	errNoSome  = errors.New(`no line "some"`)
	errNoTotal = errors.New("no total=")
)

// Parse returns the totals of a pressure file, in µs since boot, from lines such
// as "some avg10=0.00 avg60=0.00 avg300=0.00 total=49250015". The line full may be
// missing, as for cpu before kernel 5.13; a file without the line some is an
// error.
func Parse(b []byte) (snapshot.Stall, error) {
	var st snapshot.Stall
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		kind, rest, _ := bytes.Cut(line, []byte{' '})
		var to *snapshot.Opt[uint64]
		switch string(kind) {
		case "some":
			to = &st.Some
		case "full":
			to = &st.Full
		default:
			continue
		}
		total, err := parseTotal(rest)
		if err == nil && !to.IsZero() {
			err = parse.ErrDuplicate
		}
		if err != nil {
			return snapshot.Stall{}, parse.LineError(line, err)
		}
		*to = snapshot.Some(total)
	}
	if st.Some.IsZero() {
		return snapshot.Stall{}, errNoSome
	}
	return st, nil
}

func parseTotal(words []byte) (uint64, error) {
	// The kernel prints it last.
	if i := bytes.LastIndexByte(words, '=') + 1; i >= len(" total=") && string(words[i-len(" total="):i]) == " total=" {
		return parse.Uint(words[i:])
	}
	for len(words) > 0 {
		var word []byte
		word, words, _ = bytes.Cut(words, []byte{' '})
		if digits, ok := bytes.CutPrefix(word, []byte("total=")); ok {
			return parse.Uint(digits)
		}
	}
	return 0, errNoTotal
}

// Reason returns why PSI is absent, from the error of reading a pressure file.
func Reason(err error) string {
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return WhySwitchedOff
	case errors.Is(err, fs.ErrNotExist):
		return WhyNone
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("%s: %v", whyForbidden, err)
	}
	return err.Error()
}
