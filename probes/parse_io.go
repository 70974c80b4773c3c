package probes

import (
	"bytes"
	"errors"
	"slices"
)

var (
	errNoDevice  = errors.New("counters of a device without a number")
	errTwice     = errors.New("the same thing twice")
	errPartial   = errors.New("only a part of the counters of a device")
	errBlkioLine = errors.New("not of the form device, operation, number")
)

// parseIOStat reads io.stat (kernel cgroup-v2.rst): a line a device, such as
// "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0". Two odd forms are the
// kernel's own and no error: a device without counters, and several such
// devices in front of one that has them ("7:1 7:0 rbytes=…"). Any other line
// that cannot be read costs its device alone, and the error is about the first.
func parseIOStat(b []byte) ([]WorkloadIO, error) {
	var devices []WorkloadIO
	var first error
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		d, counted, err := parseIOLine(line)
		if err == nil && counted && slices.ContainsFunc(devices, func(o WorkloadIO) bool { return o.Number == d.Number }) {
			err = errTwice
		}
		switch {
		case err != nil:
			first = firstOf(first, oddLine(line, err))
		case counted:
			devices = append(devices, d)
		}
	}
	return devices, first
}

// parseIOLine says by counted whether the line has counters at all.
func parseIOLine(line []byte) (d WorkloadIO, counted bool, err error) {
	var number []byte
	var seen uint
	for word := range bytes.FieldsSeq(line) {
		key, value, isCounter := bytes.Cut(word, []byte{'='})
		if !isCounter {
			if seen != 0 {
				return d, false, errTwice
			}
			number = word
			continue
		}
		to, bit := ioCounter(&d, key)
		if to == nil {
			continue // discards, the cost model's own, what is yet to come
		}
		if seen&bit != 0 {
			return d, false, errTwice
		}
		if *to, err = parseUint(value); err != nil {
			return d, false, err
		}
		seen |= bit
	}
	switch {
	case seen == 0:
		return d, false, nil
	case !isDeviceNumber(number):
		// Paths of a multipath device are "(unknown)".
		return d, false, errNoDevice
	case seen != 0b1111:
		return d, false, errPartial
	}
	d.Number = string(number)
	return d, true, nil
}

func ioCounter(d *WorkloadIO, key []byte) (to *uint64, bit uint) {
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

// isDeviceNumber tells "major:minor" as the kernel prints it.
func isDeviceNumber(b []byte) bool {
	major, minor, ok := bytes.Cut(b, []byte{':'})
	return ok && isPlainNumber(major) && isPlainNumber(minor)
}

func isPlainNumber(b []byte) bool {
	if len(b) > 1 && b[0] == '0' {
		return false
	}
	n, err := parseUint(b)
	return err == nil && n < 1<<32
}

// blkioDevice is one device of a blkio file of cgroup v1.
type blkioDevice struct {
	number      string
	read, write Opt[uint64]
}

// parseBlkio reads blkio.throttle.io_serviced_recursive or
// io_service_bytes_recursive (kernel cgroup-v1/blkio-controller.rst): lines
// such as "8:0 Read 123", and "Total 123" at the end. A line that cannot be
// read costs itself alone, and the error is about the first.
func parseBlkio(b []byte) ([]blkioDevice, error) {
	var devices []blkioDevice
	var first error
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		var err error
		if devices, err = addBlkioLine(devices, line); err != nil {
			first = firstOf(first, oddLine(line, err))
		}
	}
	return devices, first
}

func addBlkioLine(devices []blkioDevice, line []byte) ([]blkioDevice, error) {
	words := bytes.Fields(line)
	if len(words) == 0 || len(words) == 2 && string(words[0]) == "Total" {
		return devices, nil
	}
	if len(words) != 3 {
		return devices, errBlkioLine
	}
	operation := string(words[1])
	if operation != "Read" && operation != "Write" {
		return devices, nil // sync, async and discard are other views of the same
	}
	if !isDeviceNumber(words[0]) {
		return devices, errNoDevice
	}
	n, err := parseUint(words[2])
	if err != nil {
		return devices, err
	}
	number := string(words[0])
	i := slices.IndexFunc(devices, func(d blkioDevice) bool { return d.number == number })
	if i < 0 {
		i = len(devices)
		devices = append(devices, blkioDevice{number: number})
	}
	to := &devices[i].read
	if operation == "Write" {
		to = &devices[i].write
	}
	if !to.IsZero() {
		return devices, errTwice
	}
	*to = Some(n)
	return devices, nil
}

// joinBlkio puts operations and bytes together. A device that lacks one of the
// four numbers (it came between the two reads) is left out, which the error says.
func joinBlkio(operations, size []blkioDevice) ([]WorkloadIO, error) {
	var devices []WorkloadIO
	var first error
	for _, o := range operations {
		i := slices.IndexFunc(size, func(d blkioDevice) bool { return d.number == o.number })
		if i < 0 {
			first = firstOf(first, oddLine([]byte(o.number), errPartial))
			continue
		}
		d, whole := joinDevice(o, size[i])
		if !whole {
			first = firstOf(first, oddLine([]byte(o.number), errPartial))
			continue
		}
		devices = append(devices, d)
	}
	for _, s := range size {
		if !slices.ContainsFunc(operations, func(d blkioDevice) bool { return d.number == s.number }) {
			first = firstOf(first, oddLine([]byte(s.number), errPartial))
		}
	}
	return devices, first
}

func joinDevice(operations, size blkioDevice) (WorkloadIO, bool) {
	reads, ok1 := operations.read.Get()
	writes, ok2 := operations.write.Get()
	readBytes, ok3 := size.read.Get()
	writtenBytes, ok4 := size.write.Get()
	return WorkloadIO{
		Number: operations.number, Reads: reads, Writes: writes,
		ReadBytes: readBytes, WrittenBytes: writtenBytes,
	}, ok1 && ok2 && ok3 && ok4
}
