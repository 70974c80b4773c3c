package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// StopTimeout bounds the shutdown: a part may hang in the kernel.
const StopTimeout = 5 * time.Second

// WaitAll waits for all parts; after ctx is done, no longer than StopTimeout.
func WaitAll(ctx context.Context, g *errgroup.Group) error {
	all := make(chan error, 1)
	go func() { all <- g.Wait() }()
	select {
	case err := <-all:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-all:
		return err
	case <-time.After(StopTimeout):
		if why := context.Cause(ctx); !errors.Is(why, context.Canceled) {
			return why // the reason for the shutdown matters more than what hangs
		}
		return fmt.Errorf("shutdown timed out after %s: a kernel file or the disk of the state hangs", StopTimeout)
	}
}
