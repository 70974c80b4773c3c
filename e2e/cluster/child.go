package cluster

import (
	"os/exec"
	"runtime"
	"syscall"
)

// child is a process that ends with this one, even when this one is killed.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed once the process is gone and its status is in cmd
}

// startChild starts cmd in a process group of its own, so that a Ctrl-C on the
// terminal reaches this process alone.
func startChild(cmd *exec.Cmd, death syscall.Signal) (*child, error) {
	return startApart(cmd, death, nil)
}

// startApart is startChild in a network namespace of its own, when there are
// addresses that lead out of it.
func startApart(cmd *exec.Cmd, death syscall.Signal, addresses []string) (*child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, death
	c := &child{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// "Parent" is the thread that started it, to the kernel: that thread
		// must live as long as the child.
		runtime.LockOSThread()
		defer close(c.ended)
		var out *apart
		if len(addresses) == 0 {
			defer runtime.UnlockOSThread() // else the thread goes with its namespace
		} else {
			var err error
			if out, err = leave(addresses); err != nil {
				started <- err
				return
			}
		}
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the status is in ProcessState
			// What it has started ends with it, as in a container: a Velero that is
			// killed leaves its plugins behind.
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		_ = out.close() // nobody is inside any more
	}()
	return c, <-started
}

func (c *child) signal(s syscall.Signal) error {
	return c.cmd.Process.Signal(s)
}

func (c *child) alive() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}
