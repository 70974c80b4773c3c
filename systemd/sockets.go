package systemd

import (
	"fmt"
	"net"

	"github.com/coreos/go-systemd/v22/activation"
)

// Listeners are the sockets passed by systemd (socket activation); none without a
// socket unit. Further calls return none.
func Listeners() ([]net.Listener, error) {
	var list []net.Listener
	for _, file := range activation.Files(true) {
		l, err := net.FileListener(file) // of a duplicate
		_ = file.Close()                 // never written to
		if err != nil {
			for _, open := range list {
				_ = open.Close() // the first error is returned
			}
			return nil, fmt.Errorf("listen on systemd socket %s: %w", file.Name(), err)
		}
		list = append(list, l)
	}
	return list, nil
}
