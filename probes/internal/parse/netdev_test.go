package parse

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzNetDevLine(f *testing.F) {
	f.Add([]byte("  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"))
	f.Add([]byte(" lo:1"))
	f.Add([]byte(":"))
	f.Fuzz(func(t *testing.T, line []byte) {
		name, c, err := NetDev(line)
		if err != nil {
			return
		}
		again := fmt.Sprintf("%s: %d %d %d %d 0 0 0 0 %d %d %d %d 0 0 0 0", name,
			c.ReceiveBytes, c.ReceivePackets, c.ReceiveErrors, c.ReceiveDrops, c.TransmitBytes, c.TransmitPackets, c.TransmitErrors, c.TransmitDrops)
		name2, c2, err := NetDev([]byte(again))
		require.NoError(t, err)
		require.Equal(t, c, c2)
		require.Equal(t, name, name2)
	})
}
