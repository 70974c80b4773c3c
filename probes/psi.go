package probes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Reasons why PSI is absent, one for each remedy.
const (
	whyPSISwitchedOff = "PSI is disabled (boot with psi=1)"
	// A kernel that hides the files while PSI is off looks like one without
	// PSI.
	whyNoPSI        = "no PSI (kernel built without CONFIG_PSI, or booted without psi=1)"
	whyPSIForbidden = "no permission to read PSI"
	whyPSICgroupOff = "PSI is disabled for this cgroup (cgroup.pressure is 0)"
)

var (
	errNoSome  = errors.New(`no line "some"`)
	errNoTotal = errors.New("no total=")
)

// parsePSI parses the totals of a pressure file (kernel
// Documentation/accounting/psi.rst): lines such as "some avg10=0.00 avg60=0.00
// avg300=0.00 total=49250015". The line full may be missing, as for cpu before
// kernel 5.13.
func parsePSI(b []byte) (snapshot.Stall, error) {
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
		total, err := psiTotal(rest)
		if err == nil && !to.IsZero() {
			err = errDuplicate
		}
		if err != nil {
			return snapshot.Stall{}, lineError(line, err)
		}
		*to = snapshot.Some(total)
	}
	if st.Some.IsZero() {
		return snapshot.Stall{}, errNoSome
	}
	return st, nil
}

func psiTotal(words []byte) (uint64, error) {
	// The kernel prints it last.
	if i := bytes.LastIndexByte(words, '=') + 1; i >= len(" total=") && string(words[i-len(" total="):i]) == " total=" {
		return parseUint(words[i:])
	}
	for len(words) > 0 {
		var word []byte
		word, words, _ = bytes.Cut(words, []byte{' '})
		if digits, ok := bytes.CutPrefix(word, []byte("total=")); ok {
			return parseUint(digits)
		}
	}
	return 0, errNoTotal
}

// readStall reads a file of /proc/pressure, or returns the reason why there is
// no stall. withFull is false for cpu, whose full means nothing on a whole
// node.
func readStall(path string, withFull bool) (snapshot.Stall, string) {
	b, err := os.ReadFile(path)
	if err != nil {
		return snapshot.Stall{}, psiReason(err)
	}
	st, err := parsePSI(b)
	if err != nil {
		return snapshot.Stall{}, fmt.Sprintf("%s: %v", path, err)
	}
	if !withFull {
		st.Full = snapshot.Opt[uint64]{}
	}
	return st, ""
}

// psiReason maps the error of reading a pressure file to a reason.
func psiReason(err error) string {
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return whyPSISwitchedOff
	case errors.Is(err, fs.ErrNotExist):
		return whyNoPSI
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("%s: %v", whyPSIForbidden, err)
	}
	return err.Error()
}
