package process

import (
	"context"
	"errors"
	"net"

	"github.com/plimsoll-dev/plimsoll/daemon/web"
	"github.com/plimsoll-dev/plimsoll/systemd"
)

// webServer serves on addresses of its own, or on listeners that are already
// open.
type webServer interface {
	Listen(ctx context.Context, address string, x web.Exposure) (*web.Listener, error)
	On(l net.Listener, x web.Exposure) (*web.Listener, error)
}

// OpenWeb uses the sockets that systemd passed (socket activation), otherwise
// it opens the addresses.
func OpenWeb(ctx context.Context, s webServer, addresses []string, x web.Exposure) ([]*web.Listener, error) {
	handed, err := systemd.Listeners()
	if err != nil {
		return nil, err
	}
	if len(handed) > 0 {
		return openAll(handed, func(l net.Listener) (*web.Listener, error) { return s.On(l, x) })
	}
	return openAll(addresses, func(a string) (*web.Listener, error) { return s.Listen(ctx, a, x) })
}

// openAll opens all or none: if one fails, it closes those before it.
func openAll[T any](list []T, open func(T) (*web.Listener, error)) (opened []*web.Listener, _ error) {
	for _, one := range list {
		l, err := open(one)
		if err != nil {
			return nil, errors.Join(err, CloseAll(opened))
		}
		opened = append(opened, l)
	}
	return opened, nil
}

// CloseAll closes listeners; one that is closed already is no error.
func CloseAll(list []*web.Listener) error {
	var errs []error
	for _, l := range list {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
