//go:build !amd64

package clock

import (
	"errors"
	"os/exec"
	"runtime"
	"time"
)

// Supported tells whether [Start] is known for this processor.
const Supported = false

// Clock of a process that [Start] has started.
type Clock struct{}

// Start is not known for this processor.
func Start(*exec.Cmd) (*Clock, error) {
	return nil, errors.New("the clock of a process cannot be set on " + runtime.GOARCH)
}

// Set does nothing: there is no such Clock.
func (c *Clock) Set(time.Duration) error { return nil }
