package cluster

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// place is where the programs of a control plane are: their directory, and their own
// address of the loopback network.
type place struct {
	dir, host string
	options   Options
	// given counts ports, so that none is given twice: the program that has it may not
	// listen yet.
	given *atomic.Uint32
}

func (p place) file(name string) string { return filepath.Join(p.dir, name) }

func (p place) at(port int) string {
	return net.JoinHostPort(p.host, strconv.Itoa(port))
}

// The ports of control planes are below the range from which the kernel takes ports for
// connections: one of those is taken again at any moment.
const firstPort, portCount = 20000, 12000

// freePort is one that no process listens on now, and that was not given before.
func (p place) freePort(ctx context.Context) (port int, err error) {
	for range 100 {
		port = firstPort + int(p.given.Add(1)%portCount)
		var l net.Listener
		if l, err = new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(p.host, strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// process of a program that Start starts.
func (p place) process(ctx context.Context, program, name string, ready func(context.Context) error, args ...string) (*Process, error) {
	path, err := Program(ctx, p.options.versioned(program))
	return &Process{
		name: name, path: path, log: p.file(name + ".log"), ready: ready,
		args: slices.Concat(args, p.options.Args[program]),
		env:  []string{"GOGC=400"}, // its memory is small and soon gone; a fifth less time of the processor
	}, err
}

// etcd is the program, and its URL.
func (p place) etcd(ctx context.Context) (etcd *Process, url string, err error) {
	client, err := p.freePort(ctx)
	if err != nil {
		return nil, "", err
	}
	peer, err := p.freePort(ctx)
	if err != nil {
		return nil, "", err
	}
	url = "http://" + p.at(client)
	peers := "http://" + p.at(peer)
	etcd, err = p.process(
		ctx, Etcd, Etcd, healthy(url+"/readyz"),
		"--data-dir="+p.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		// It elects itself: no need to wait a second for others.
		"--heartbeat-interval=100", "--election-timeout=500",
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers,
	)
	return etcd, url, err
}

// apiServer is number i, counted from 0, with further arguments.
func (p place) apiServer(ctx context.Context, i, port int, etcd string, ready func(context.Context) error, more ...string) (*Process, error) {
	name := APIServer
	if i > 0 {
		name += "-" + strconv.Itoa(i)
	}
	args := []string{
		"--etcd-servers=" + etcd, "--bind-address=" + p.host, "--secure-port=" + strconv.Itoa(port),
		// A loopback address cannot be an endpoint of the Service kubernetes.
		"--advertise-address=" + p.host, "--endpoint-reconciler-type=none",
		"--client-ca-file=" + p.file("ca.crt"),
		"--tls-cert-file=" + p.file("apiserver.crt"), "--tls-private-key-file=" + p.file("apiserver.key"),
		"--service-account-key-file=" + p.file("tokens.key"), "--service-account-signing-key-file=" + p.file("tokens.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true", "--profiling=false",
	}
	return p.process(ctx, APIServer, name, ready, append(args, more...)...)
}

func (p place) controllerManagerArgs(g Graces) []string {
	args := []string{
		// Past the limits of a real cluster, a start would take 5 s longer.
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--service-account-private-key-file=" + p.file("tokens.key"), "--root-ca-file=" + p.file("ca.crt"),
	}
	for flag, d := range map[string]time.Duration{
		"node-monitor-period":       g.NodeMonitorPeriod,
		"node-monitor-grace-period": g.NodeMonitor,
		"node-startup-grace-period": g.NodeStartup,
	} {
		if d > 0 {
			args = append(args, fmt.Sprintf("--%s=%s", flag, d))
		}
	}
	return args
}

// clientOf is a program that works through an API server, by its kubeconfig.
func (p place) clientOf(ctx context.Context, program, kubeconfig string, args ...string) (*Process, error) {
	port, err := p.freePort(ctx)
	if err != nil {
		return nil, err
	}
	return p.process(ctx, program, program, healthy("https://"+p.at(port)+"/healthz"), append([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + p.host, "--secure-port=" + strconv.Itoa(port), "--leader-elect=false", "--profiling=false",
	}, args...)...)
}
