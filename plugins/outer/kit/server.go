package kit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-dev/plimsoll/katalyst/v1alpha1"
)

const (
	// maxRequest bounds one request in bytes, far above the 4 MiB that hosts
	// keep to.
	maxRequest = 64 << 20
	// stopTimeout is how long running calls may take when the plugin ends.
	stopTimeout = 2 * time.Second
	// hostTimeout is how long the plugin waits for a host before it logs a warning.
	hostTimeout = 15 * time.Second
)

// Server serves one plugin on one socket.
type Server struct {
	// Name of the plugin, unique on the node: letters, digits, '.', '_' and
	// '-'.
	Name   string
	Plugin Plugin
	// Dir is the directory of its socket <Name>.sock; it must exist.
	Dir string
	// Token authenticates the plugin to a host that requires one.
	Token string
	Log   *slog.Logger
}

// Run serves until the context is done; then it removes the socket, lets
// running calls finish, and returns nil.
func (s *Server) Run(ctx context.Context) error {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`).MatchString(s.Name) {
		return fmt.Errorf("name %q: want letters, digits, '.', '_' and '-'", s.Name)
	}
	listener, err := listen(ctx, filepath.Join(s.Dir, s.Name+".sock"))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.Log.Info("serving", "plugin", s.Name, "socket", listener.path)
	seen := make(chan struct{}, 1)
	served := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest))
	v1alpha1.RegisterEvictionPluginServer(served, &pluginService{s: s, turn: make(chan struct{}, 1)})
	registration.RegisterRegistrationServer(served, &registrationService{s: s, hostSeen: seen})

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := served.Serve(listener); !errors.Is(err, grpc.ErrServerStopped) { // stopped before it started
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		err := listener.remove()
		end(served)
		return err
	})
	group.Go(func() error { s.warnWithoutHost(ctx, seen); return nil })
	if r, ok := s.Plugin.(Runner); ok {
		group.Go(func() error { return r.Run(ctx) })
	}
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	s.Log.Info("stopped", "plugin", s.Name)
	return nil
}

// end waits for running calls, for at most stopTimeout.
func end(served *grpc.Server) {
	force := time.AfterFunc(stopTimeout, served.Stop)
	defer force.Stop()
	served.GracefulStop()
}

// warnWithoutHost warns if no host has connected for a while, as happens with a wrong
// directory.
func (s *Server) warnWithoutHost(ctx context.Context, seen <-chan struct{}) {
	late := time.NewTimer(hostTimeout)
	defer late.Stop()
	select {
	case <-ctx.Done():
	case <-seen:
	case <-late.C:
		s.Log.Warn("no agent has connected yet; check that one runs and that its plugins.dirs have this directory", "dir", s.Dir)
	}
}

// registrationService implements the kubelet's registration service.
type registrationService struct {
	registration.UnimplementedRegistrationServer
	s        *Server
	hostSeen chan<- struct{}
}

// GetInfo describes the plugin. The endpoint is empty, since the host may see
// the socket under another path than a container does.
func (r *registrationService) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	select {
	case r.hostSeen <- struct{}{}:
	default:
	}
	return &registration.PluginInfo{Type: v1alpha1.PluginType, Name: r.s.Name, SupportedVersions: []string{v1alpha1.Version}}, nil
}

// NotifyRegistrationStatus receives the result of the registration.
func (r *registrationService) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if status.GetPluginRegistered() {
		r.s.Log.Info("registered with the agent", "plugin", r.s.Name)
	} else {
		r.s.Log.Warn("the agent refused this plugin", "plugin", r.s.Name, "reason", status.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// pluginService implements the plugin service.
type pluginService struct {
	v1alpha1.UnimplementedEvictionPluginServer
	s *Server
	// turn is held by the running call.
	turn chan struct{}
}

func (a *pluginService) GetToken(context.Context, *v1alpha1.Empty) (*v1alpha1.GetTokenResponse, error) {
	return &v1alpha1.GetTokenResponse{Token: a.s.Token}, nil
}

func (a *pluginService) ThresholdMet(ctx context.Context, r *v1alpha1.GetThresholdMetRequest) (*v1alpha1.ThresholdMetResponse, error) {
	pods, err := decodePods(r.GetActivePods())
	if err != nil {
		return nil, err
	}
	return answer(ctx, a, func() (*v1alpha1.ThresholdMetResponse, error) {
		t, err := a.s.Plugin.Threshold(ctx, pods)
		if err != nil {
			return nil, err
		}
		return t.wire()
	})
}

func (a *pluginService) GetTopEvictionPods(ctx context.Context, r *v1alpha1.GetTopEvictionPodsRequest) (*v1alpha1.GetTopEvictionPodsResponse, error) {
	topper, ok := a.s.Plugin.(Topper)
	if !ok {
		return &v1alpha1.GetTopEvictionPodsResponse{}, nil
	}
	ask, err := newAsk(r)
	if err != nil {
		return nil, err
	}
	return answer(ctx, a, func() (*v1alpha1.GetTopEvictionPodsResponse, error) {
		named, err := topper.Top(ctx, ask)
		if err != nil {
			return nil, err
		}
		return named.wire()
	})
}

func (a *pluginService) GetEvictPods(ctx context.Context, r *v1alpha1.GetEvictPodsRequest) (*v1alpha1.GetEvictPodsResponse, error) {
	evicter, ok := a.s.Plugin.(Evicter)
	if !ok {
		return &v1alpha1.GetEvictPodsResponse{}, nil
	}
	pods, err := decodePods(r.GetActivePods())
	if err != nil {
		return nil, err
	}
	return answer(ctx, a, func() (*v1alpha1.GetEvictPodsResponse, error) {
		e, err := evicter.Evict(ctx, pods)
		if err != nil {
			return nil, err
		}
		return e.wire(a.s.Name)
	})
}

// answer waits until no other call runs, and does not start a call that the
// host has given up.
func answer[T any](ctx context.Context, a *pluginService, ask func() (*T, error)) (*T, error) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return ask()
}
