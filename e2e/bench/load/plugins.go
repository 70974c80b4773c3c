package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/plimsoll-dev/plimsoll/plugins/outer/kit"
)

// calm is an outer plugin whose threshold is never met.
type calm struct{}

// Threshold looks at each pod, as a plugin does.
func (calm) Threshold(_ context.Context, pods []*corev1.Pod) (kit.Threshold, error) {
	requests := 0.0
	for _, p := range pods {
		for i := range p.Spec.Containers {
			requests += p.Spec.Containers[i].Resources.Requests.Cpu().AsApproximateFloat64()
		}
	}
	return kit.Threshold{Observed: requests, Limit: 1e9}, nil
}

// servePlugins has so many of them in a directory, until it is ended.
func servePlugins(dir string, count int) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	for i := range count {
		s := &kit.Server{Name: fmt.Sprintf("calm-%02d", i), Plugin: calm{}, Dir: dir, Log: slog.New(slog.DiscardHandler)}
		g.Go(func() error { return s.Run(ctx) })
	}
	return g.Wait()
}
