// Command rogue is an outer plugin that behaves well or badly, as it is told,
// by chance from a seed. It writes a line for each pod that it names, so that a
// test can tell what an eviction was for.
//
// # Usage
//
//	rogue -mode honest|hang|mute|crash|lie|flood|again|garbage -name NAME -dir DIR -seed N -log FILE [-rest ROUNDS]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
)

func main() {
	r := &rogue{}
	mode := flag.String("mode", "honest", "how it behaves")
	flag.StringVar(&r.name, "name", "rogue", "its name")
	flag.StringVar(&r.dir, "dir", ".", "where its socket is made")
	flag.IntVar(&r.rest, "rest", 0, "for how many rounds an honest one rests, about, beyond what chance says")
	seed := flag.Uint64("seed", 1, "of what it does by chance")
	flag.StringVar(&r.log, "log", os.DevNull, "the file of what it says")
	flag.Parse()
	r.random = rand.New(rand.NewPCG(*seed, 0))
	how, known := modes()[*mode]
	if !known {
		fmt.Fprintf(os.Stderr, "rogue: mode %q is not known\n", *mode)
		os.Exit(2)
	}
	if err := how(r, context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "rogue:", err)
		os.Exit(1)
	}
}

func modes() map[string]func(*rogue, context.Context) error {
	return map[string]func(*rogue, context.Context) error{
		"honest":  func(r *rogue, ctx context.Context) error { return r.serve(ctx, &honest{rogue: r}) },
		"hang":    func(r *rogue, ctx context.Context) error { return r.serve(ctx, hang{}) },
		"crash":   func(r *rogue, ctx context.Context) error { return r.serve(ctx, crash{&honest{rogue: r}}) },
		"mute":    (*rogue).mute,
		"lie":     (*rogue).lie,
		"flood":   (*rogue).flood,
		"again":   (*rogue).again,
		"garbage": (*rogue).garbage,
	}
}

// rogue is what all modes have.
type rogue struct {
	name, dir, log string
	rest           int

	mu     sync.Mutex // of random, which handlers share
	random *rand.Rand
}

func (r *rogue) chance(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.random.IntN(n)
}

func (r *rogue) serve(ctx context.Context, p kit.Plugin) error {
	return (&kit.Server{Name: r.name, Plugin: p, Dir: r.dir, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
}

// line is what one answer said.
type line struct {
	Time  time.Time `json:"time"`
	Asked string    `json:"asked"`
	Named []string  `json:"named"`
}

func (r *rogue) write(asked string, pods []*corev1.Pod) error {
	said := line{Time: time.Now(), Asked: asked}
	for _, p := range pods {
		said.Named = append(said.Named, p.Name)
	}
	b, err := json.Marshal(said)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(r.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(b, '\n'))
	return err
}

// honest presses for some rounds and rests for others, and names pods that may
// go: those whose names begin with "fair".
type honest struct {
	*rogue
	left     int
	pressing bool
	rested   bool // it does not begin with pressing where it is to rest
}

func (h *honest) Threshold(context.Context, []*corev1.Pod) (kit.Threshold, error) {
	if h.left--; h.left < 0 {
		h.left, h.pressing = 2+h.chance(8), !h.pressing
		if h.rest > 0 && (!h.pressing || !h.rested) {
			h.left, h.pressing, h.rested = h.chance(2*h.rest), false, true
		}
	}
	t := kit.Threshold{Observed: 1, Limit: 1, Scope: h.name, Condition: &kit.Condition{Name: "Rogue"}}
	if h.pressing {
		t.Level = kit.Hard
	}
	return t, h.write("threshold", nil)
}

func (h *honest) Top(_ context.Context, ask kit.Ask) (kit.Named, error) {
	var n kit.Named
	for _, p := range ask.Pods {
		if strings.HasPrefix(p.Name, "fair") && len(n.Pods) < ask.N {
			n.Pods = append(n.Pods, p)
		}
	}
	return n, h.write("top", n.Pods)
}

// hang never answers.
type hang struct{}

func (hang) Threshold(context.Context, []*corev1.Pod) (kit.Threshold, error) { select {} }

func (hang) Evict(context.Context, []*corev1.Pod) (kit.Evictions, error) { select {} }

// crash is honest until it dies, in the middle of an answer.
type crash struct{ *honest }

func (c crash) Threshold(ctx context.Context, pods []*corev1.Pod) (kit.Threshold, error) {
	if c.chance(4) == 0 {
		os.Exit(3)
	}
	return c.honest.Threshold(ctx, pods)
}

// mute listens and never accepts.
func (r *rogue) mute(ctx context.Context) error {
	l, err := r.listen(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	for ctx.Err() == nil { // a wait for nothing else would count as a deadlock
		time.Sleep(time.Second)
	}
	return nil
}

// listen over whatever is there, as plugins without the kit do.
func (r *rogue) listen(ctx context.Context) (net.Listener, error) {
	path := filepath.Join(r.dir, r.name+".sock")
	_ = os.Remove(path) // it need not be there
	return new(net.ListenConfig).Listen(ctx, "unix", path)
}

// garbage says anything but HTTP/2, and hangs up.
func (r *rogue) garbage(ctx context.Context) error {
	l, err := r.listen(ctx)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		b := make([]byte, r.chance(1<<16))
		for i := range b {
			b[i] = byte(r.chance(256))
		}
		_, _ = c.Write(b) // the host may have gone
		_ = c.Close()
	}
}

// again takes its socket away and comes back, all the time.
func (r *rogue) again(ctx context.Context) error {
	for {
		once, cancel := context.WithTimeout(ctx, time.Duration(10+r.chance(300))*time.Millisecond)
		err := r.serve(once, &honest{rogue: r})
		cancel()
		if err != nil {
			return err
		}
	}
}
