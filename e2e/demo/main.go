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
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/plimsoll-dev/plimsoll/e2e/cluster"
	"github.com/plimsoll-dev/plimsoll/e2e/velero"
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
	velero        *velero.Server
	dynamic       dynamic.Interface
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
	for _, step := range []func(context.Context) (undo func() error, err error){
		s.startCluster, s.startVelero, s.startController, s.queue,
		s.startNode, s.startPods, s.startNodeAgent, s.startAgent, s.press, s.hold, s.watchEviction, s.explain, s.letGo, s.check,
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
