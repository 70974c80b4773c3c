package parse

import (
	"bytes"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// NetDev parses one line of /proc/net/dev (proc_pid_net(5)): a name and a colon,
// eight columns for receive and eight for transmit. The first four of each eight
// are bytes, packets, errors and drops. The name points into the line.
func NetDev(line []byte) (name []byte, c snapshot.NICCounters, err error) {
	name, rest, found := bytes.Cut(line, []byte{':'}) // no device name has one (dev_valid_name)
	name = bytes.TrimLeft(name, " ")
	if !found || len(name) == 0 {
		return nil, c, ErrShortLine
	}
	to := [...]*uint64{
		&c.ReceiveBytes, &c.ReceivePackets, &c.ReceiveErrors, &c.ReceiveDrops, nil, nil, nil, nil,
		&c.TransmitBytes, &c.TransmitPackets, &c.TransmitErrors, &c.TransmitDrops, // and four more
	}
	for i := range to {
		var field []byte
		if field, rest = Field(rest); len(field) == 0 {
			return name, c, ErrShortLine
		}
		if to[i] == nil {
			continue
		}
		if *to[i], err = Uint(field); err != nil {
			return name, c, err
		}
	}
	return name, c, nil
}
