package cgroup

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/plimsoll-dev/plimsoll/probes/internal/parse"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

var (
	errNoDevice   = errors.New("counters without a device number")
	errIncomplete = errors.New("incomplete counters")
	errBlkioLine  = errors.New("want device, operation, number")
)

// unnamedDevice is what the kernel prints for a device that it shows nowhere else
// (bdi_dev_name): a path of NVMe multipath, which repeats the requests of its head, or a
// disk that was just removed, whose last requests are of no disk that is known.
const unnamedDevice = "(unknown)"

// parseIOStat parses io.stat (kernel cgroup-v2.rst): one line per device, such
// as "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0", and appends to
// devices. The kernel itself prints three odd forms, which are no errors: a
// device without counters, several such devices before one with counters
// ("7:1 7:0 rbytes=…"), and an unnamedDevice. A device whose line is otherwise
// malformed is left out; the error is about the first one.
func parseIOStat(b []byte, devices []snapshot.WorkloadIO, known interner) ([]snapshot.WorkloadIO, error) {
	var first error
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		d, counted, err := parseIOLine(line, known)
		if err == nil && counted && slices.ContainsFunc(devices, func(o snapshot.WorkloadIO) bool { return o.Number == d.Number }) {
			err = parse.ErrDuplicate
		}
		switch {
		case err != nil:
			first = cmp.Or(first, parse.LineError(line, err))
		case counted:
			devices = append(devices, d)
		}
	}
	return devices, first
}

// parseIOLine parses one line; counted reports whether it has counters of a device with a
// number.
func parseIOLine(line []byte, known interner) (d snapshot.WorkloadIO, counted bool, err error) {
	var number []byte
	var seen uint
	for len(line) > 0 {
		var key, value []byte
		key, value, line = nextWord(line)
		switch {
		case value != nil:
			err = countIO(&d, &seen, key, value)
		case len(key) == 0: // two spaces in a row
		case seen != 0:
			err = parse.ErrDuplicate
		default:
			number = key
		}
		if err != nil {
			return d, false, err
		}
	}
	switch {
	case seen == 0, string(number) == unnamedDevice:
		return d, false, nil
	case !isDeviceNumber(number):
		return d, false, errNoDevice
	case seen != 0b1111:
		return d, false, errIncomplete
	}
	d.Number = known.intern(number)
	return d, true, nil
}

// nextWord cuts the first word off a line: a key and its value, which is nil
// for a word without an equals sign.
func nextWord(line []byte) (key, value, rest []byte) {
	for i, c := range line {
		switch c {
		case ' ':
			return line[:i], nil, line[i+1:]
		case '=':
			value, rest, _ = bytes.Cut(line[i+1:], []byte{' '})
			return line[:i], value, rest
		}
	}
	return line, nil, nil
}

// countIO stores a value in the field of its key; seen has a bit for each key
// so far. Discards, the counters of io.cost and unknown keys are ignored.
func countIO(d *snapshot.WorkloadIO, seen *uint, key, value []byte) error {
	to, bit := ioCounter(d, key)
	switch {
	case to == nil:
		return nil
	case *seen&bit != 0:
		return parse.ErrDuplicate
	}
	*seen |= bit
	var err error
	*to, err = parse.Uint(value)
	return err
}

func ioCounter(d *snapshot.WorkloadIO, key []byte) (to *uint64, bit uint) {
	switch string(key) {
	case "rbytes":
		return &d.ReadBytes, 1
	case "wbytes":
		return &d.WrittenBytes, 2
	case "rios":
		return &d.Reads, 4
	case "wios":
		return &d.Writes, 8
	}
	return nil, 0
}

// isDeviceNumber reports whether b is "major:minor" as the kernel prints it.
func isDeviceNumber(b []byte) bool {
	major, minor, ok := bytes.Cut(b, []byte{':'})
	return ok && isPlainNumber(major) && isPlainNumber(minor)
}

func isPlainNumber(b []byte) bool {
	if len(b) > 1 && b[0] == '0' {
		return false
	}
	n, err := parse.Uint(b)
	return err == nil && n < 1<<32
}

// blkioDevice is one device in a blkio file of cgroup v1.
type blkioDevice struct {
	number      string
	read, write snapshot.Opt[uint64]
}

// parseBlkio parses blkio.throttle.io_serviced_recursive or
// io_service_bytes_recursive (kernel cgroup-v1/blkio-controller.rst): lines
// such as "8:0 Read 123", with "Total 123" at the end. It appends to devices. A
// malformed line is skipped; the error is about the first one.
func parseBlkio(b []byte, devices []blkioDevice, known interner) ([]blkioDevice, error) {
	var first error
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		var err error
		if devices, err = addBlkioLine(devices, line, known); err != nil {
			first = cmp.Or(first, parse.LineError(line, err))
		}
	}
	return devices, first
}

func addBlkioLine(devices []blkioDevice, line []byte, known interner) ([]blkioDevice, error) {
	var words [3][]byte
	switch n := split(line, &words); {
	case n == 0, n == 2 && string(words[0]) == "Total":
		return devices, nil
	case n != 3:
		return devices, errBlkioLine
	}
	isWrite := string(words[1]) == "Write"
	switch {
	case string(words[0]) == unnamedDevice:
		return devices, nil
	case !isWrite && string(words[1]) != "Read":
		return devices, nil // sync, async and discard count the same requests again
	}
	if !isDeviceNumber(words[0]) {
		return devices, errNoDevice
	}
	n, err := parse.Uint(words[2])
	if err != nil {
		return devices, err
	}
	number := known.intern(words[0])
	i := slices.IndexFunc(devices, func(d blkioDevice) bool { return d.number == number })
	if i < 0 {
		i = len(devices)
		devices = append(devices, blkioDevice{number: number})
	}
	to := &devices[i].read
	if isWrite {
		to = &devices[i].write
	}
	if !to.IsZero() {
		return devices, parse.ErrDuplicate
	}
	*to = snapshot.Some(n)
	return devices, nil
}

// split cuts a line into words and returns their number, or 4 if there are more
// than three.
func split(line []byte, words *[3][]byte) int {
	n := 0
	for word := range bytes.FieldsSeq(line) {
		if n == len(words) {
			return n + 1
		}
		words[n] = word
		n++
	}
	return n
}

// joinBlkio merges operations and bytes per device and appends to devices. A
// device that lacks one of the four numbers (it appeared between the two reads)
// is left out; the error is about the first one.
func joinBlkio(operations, size []blkioDevice, devices []snapshot.WorkloadIO) ([]snapshot.WorkloadIO, error) {
	var first error
	for _, o := range operations {
		i := slices.IndexFunc(size, func(d blkioDevice) bool { return d.number == o.number })
		if i < 0 {
			first = cmp.Or(first, parse.LineError([]byte(o.number), errIncomplete))
			continue
		}
		d, whole := joinDevice(o, size[i])
		if !whole {
			first = cmp.Or(first, parse.LineError([]byte(o.number), errIncomplete))
			continue
		}
		devices = append(devices, d)
	}
	for _, s := range size {
		if !slices.ContainsFunc(operations, func(d blkioDevice) bool { return d.number == s.number }) {
			first = cmp.Or(first, parse.LineError([]byte(s.number), errIncomplete))
		}
	}
	return devices, first
}

func joinDevice(operations, size blkioDevice) (snapshot.WorkloadIO, bool) {
	reads, ok1 := operations.read.Get()
	writes, ok2 := operations.write.Get()
	readBytes, ok3 := size.read.Get()
	writtenBytes, ok4 := size.write.Get()
	return snapshot.WorkloadIO{
		Number: operations.number, Reads: reads, Writes: writes,
		ReadBytes: readBytes, WrittenBytes: writtenBytes,
	}, ok1 && ok2 && ok3 && ok4
}
