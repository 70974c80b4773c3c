// Command demo shows Plimsoll at work on this host: a real Kubernetes control
// plane on loopback, a real Velero whose Backups the controller queues, a Node
// with two pods in real cgroups, one of which takes nearly all memory there is,
// and the agent that marks the Node, evicts exactly that pod and says why, while
// the controller holds a load of Velero's for that Node. Everything it made is
// gone when it ends.
//
//	demo PLIMSOLL HOG
//
// The two arguments are the built programs. There are stand-ins for the kubelet,
// which needs a container runtime, and for what runs the data movers of Velero's
// node-agent, which need images and volumes. It says so.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: demo PLIMSOLL HOG")
		os.Exit(2)
	}
	runtime.LockOSThread() // the agent ends with the thread that started it
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// show is one demonstration.
type show struct {
	plimsoll, hog string
	dir           string // of everything it writes
	cluster       *cluster.Cluster
	kubelet       *cluster.StandIn
	start         time.Time
}

func run(ctx context.Context, plimsoll, hog string) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("needs root: the pods get real cgroups")
	}
	if err := enoughMemory(); err != nil {
		return err
	}
	s := &show{start: time.Now()}
	if s.plimsoll, err = filepath.Abs(plimsoll); err != nil {
		return err
	}
	if s.hog, err = filepath.Abs(hog); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "plimsoll-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	return s.play(ctx)
}

// play takes one step after the other, and undoes them backwards at the end.
func (s *show) play(ctx context.Context) error {
	v := &veleroActs{show: s}
	for _, step := range []func(context.Context) (undo func() error, err error){
		s.startCluster, v.startVelero, v.startController, v.queue,
		s.startNode, s.startPods, v.startNodeAgent, s.startAgent, s.press, v.hold, s.watchEviction, s.explain, v.letGo, s.check,
	} {
		undo, err := step(ctx)
		if undo != nil {
			defer s.undo(undo)
		}
		if ctx.Err() != nil {
			return errors.New("interrupted: all is cleaned up")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *show) undo(undo func() error) {
	if err := undo(); err != nil {
		s.say("cleaning up: %v", err)
	}
}

func (s *show) say(format string, a ...any) {
	fmt.Printf("%5.1f s  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, a...))
}

// daemon starts one of ours with its configuration; its log is in a file.
func (s *show) daemon(role string, args ...string) (undo func() error, err error) {
	log, err := os.Create(s.log(role))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.plimsoll, append([]string{role, "--config", s.config(role)}, args...)...) //nolint:noctx // it is ended by its own signal
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return func() error {
		return errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait(), log.Close())
	}, nil
}

func (s *show) config(role string) string { return filepath.Join(s.dir, role+".yaml") }

func (s *show) log(role string) string { return filepath.Join(s.dir, role+".log") }

// print what a program said.
func (s *show) print(out []byte, err error) error {
	fmt.Println("\n" + strings.TrimRight(string(out), "\n") + "\n")
	return err
}
