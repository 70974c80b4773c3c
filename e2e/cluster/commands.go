package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// process of a program that Start starts.
func (c *Cluster) process(ctx context.Context, program, name string, ready func(context.Context) error, args ...string) (*Process, error) {
	path, err := Program(ctx, program)
	return &Process{
		name: name, path: path, log: c.file(name + ".log"), ready: ready,
		args: slices.Concat(args, c.options.Args[program]),
		env:  []string{"GOGC=400"}, // its memory is small and soon gone; a fifth less time of the processor
	}, err
}

func (c *Cluster) planEtcd(ctx context.Context) (url string, err error) {
	client, err := c.freePort(ctx)
	if err != nil {
		return "", err
	}
	peer, err := c.freePort(ctx)
	if err != nil {
		return "", err
	}
	url = "http://" + c.at(client)
	peers := "http://" + c.at(peer)
	c.Etcd, err = c.process(
		ctx, Etcd, Etcd, healthy(url+"/readyz"),
		"--data-dir="+c.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		// It elects itself: no need to wait a second for others.
		"--heartbeat-interval=40", "--election-timeout=200",
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers,
	)
	return url, err
}

func (c *Cluster) planAPIServer(ctx context.Context, i int, etcd string) error {
	port, err := c.freePort(ctx)
	if err != nil {
		return err
	}
	if c.options.Lines {
		var line *Line
		if line, etcd, err = c.newLine(ctx, etcd); err != nil {
			return err
		}
		c.Lines = append(c.Lines, line)
	}
	name := APIServer
	if i > 0 {
		name += "-" + strconv.Itoa(i)
	}
	c.urls = append(c.urls, "https://"+c.at(port))
	args := []string{
		"--etcd-servers=" + etcd, "--bind-address=" + c.host, "--secure-port=" + strconv.Itoa(port),
		// A loopback address cannot be an endpoint of the Service kubernetes.
		"--advertise-address=" + c.host, "--endpoint-reconciler-type=none",
		"--client-ca-file=" + c.file("ca.crt"),
		"--tls-cert-file=" + c.file("apiserver.crt"), "--tls-private-key-file=" + c.file("apiserver.key"),
		"--service-account-key-file=" + c.file("tokens.key"), "--service-account-signing-key-file=" + c.file("tokens.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true", "--profiling=false",
	}
	audit, err := c.auditArgs(i)
	if err != nil {
		return err
	}
	ready := func(ctx context.Context) error {
		client, err := kubernetes.NewForConfig(c.AdminAt(i))
		if err != nil {
			return err
		}
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}
	p, err := c.process(ctx, APIServer, name, ready, append(args, audit...)...)
	c.APIServers = append(c.APIServers, p)
	return err
}

func (c *Cluster) planControllerManager(ctx context.Context) error {
	args := []string{
		// Past the limits of a real cluster, a start would take 5 s longer.
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--service-account-private-key-file=" + c.file("tokens.key"), "--root-ca-file=" + c.file("ca.crt"),
	}
	for flag, d := range map[string]time.Duration{
		"node-monitor-period":       c.options.Graces.NodeMonitorPeriod,
		"node-monitor-grace-period": c.options.Graces.NodeMonitor,
		"node-startup-grace-period": c.options.Graces.NodeStartup,
	} {
		if d > 0 {
			args = append(args, fmt.Sprintf("--%s=%s", flag, d))
		}
	}
	var err error
	// One identity for all its loops, which needs more than that user's own role.
	c.ControllerManager, err = c.planClient(ctx, ControllerManager, []string{"system:masters"}, args...)
	return err
}

func (c *Cluster) planScheduler(ctx context.Context) error {
	var err error
	c.Scheduler, err = c.planClient(ctx, Scheduler, nil)
	return err
}

// planClient plans a program that works through the first API server.
func (c *Cluster) planClient(ctx context.Context, program string, groups []string, args ...string) (*Process, error) {
	identity, err := c.User("system:"+program, groups...)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.WriteKubeconfig(program, identity)
	if err != nil {
		return nil, err
	}
	port, err := c.freePort(ctx)
	if err != nil {
		return nil, err
	}
	return c.process(ctx, program, program, healthy("https://"+c.at(port)+"/healthz"), append([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + c.host, "--secure-port=" + strconv.Itoa(port), "--leader-elect=false", "--profiling=false",
	}, args...)...)
}

// Address is one of the cluster's own host, that nobody listens on now.
func (c *Cluster) Address(ctx context.Context) (string, error) {
	port, err := c.freePort(ctx)
	return c.at(port), err
}

// Add a further program, which is started by the caller and ends with the
// cluster. env is beside this process's own environment.
func (c *Cluster) Add(ctx context.Context, program string, ready func(context.Context) error, env []string, args ...string) (*Process, error) {
	p, err := c.process(ctx, program, fmt.Sprintf("%s-%d", program, len(c.added)), ready, args...)
	if err != nil {
		return nil, err
	}
	p.env = env
	c.added = append(c.added, p)
	return p, nil
}

func (c *Cluster) at(port int) string {
	return net.JoinHostPort(c.host, strconv.Itoa(port))
}

// AdminAt is Admin at API server i, counted from 0.
func (c *Cluster) AdminAt(i int) *rest.Config {
	config := rest.CopyConfig(c.Admin)
	config.Host = c.urls[i]
	return config
}
