package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // the type of client-go's exported dialers
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/plimsoll-dev/plimsoll/daemon/web"
)

// agentLabels find the agents' pods, as the manifests label them.
const agentLabels = "app.kubernetes.io/name=plimsoll,app.kubernetes.io/component=agent"

// controllerLabels find the controllers' pods, as the manifests label them.
const controllerLabels = "app.kubernetes.io/name=plimsoll,app.kubernetes.io/component=controller"

// ErrNoController says that no leading controller can be asked.
var ErrNoController = errors.New("no controller can be asked")

// defaultPort of an agent whose pod names none.
const defaultPort = 9773

// ErrAgentAway says that no agent can be asked on the node.
var ErrAgentAway = errors.New("no agent can be asked")

// Agent is the client of a node's agent. Its connections go through the API server and
// the kubelet to the loopback address of the agent's pod (the pod's subresource
// portforward), where all pages are.
func (c *Cluster) Agent(ctx context.Context, node string, timeout time.Duration) (*web.Client, error) {
	pod, err := c.agentPod(ctx, node)
	if err != nil {
		return nil, err
	}
	d := &podDialer{cluster: c, away: ErrAgentAway, find: func(ctx context.Context) (*corev1.Pod, error) { return c.agentPod(ctx, node) }, pod: pod}
	return web.NewClientOver("node "+node, timeout, d.dial), nil
}

// podDialer connects to a pod, also after it was replaced.
type podDialer struct {
	cluster *Cluster
	find    func(context.Context) (*corev1.Pod, error)
	away    error // that nothing listens there

	mu  sync.Mutex // guards pod: an HTTP client may dial from several goroutines
	pod *corev1.Pod
}

func (d *podDialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	d.mu.Lock()
	pod := d.pod
	d.mu.Unlock()
	conn, err := d.cluster.dial(ctx, pod, d.away)
	if err == nil || ctx.Err() != nil {
		return conn, err
	}
	newest, why := d.find(ctx)
	switch {
	case why != nil:
		return nil, why
	case newest.UID == pod.UID:
		return nil, err
	}
	d.mu.Lock()
	d.pod = newest
	d.mu.Unlock()
	return d.cluster.dial(ctx, newest, d.away)
}

func (c *Cluster) agentPod(ctx context.Context, node string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := c.Core.Pods(Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: agentLabels, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	switch {
	case err != nil:
		return nil, told("the agent's pod on node "+node, err, viewer())
	case len(list.Items) == 0:
		return nil, fmt.Errorf("%w: no agent's pod is on node %q: see whether it is a node (kubectl get nodes) and what its pods are (kubectl -n %s get pods -o wide); an agent of a package is asked on its machine", ErrAgentAway, node, Namespace)
	}
	newest := slices.MaxFunc(list.Items, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(running(&a), running(&b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	if running(&newest) == 0 {
		return nil, fmt.Errorf("%w: pod %s on node %s is %s: kubectl -n %s describe pod %s", ErrAgentAway, newest.Name, node, cmp.Or(string(newest.Status.Phase), "not started"), Namespace, newest.Name)
	}
	return &newest, nil
}

// LeadingController is the client of the controller that leads, by the same way as an
// agent's.
func (c *Cluster) LeadingController(ctx context.Context, timeout time.Duration) (*web.Client, error) {
	pod, err := c.leaderPod(ctx)
	if err != nil {
		return nil, err
	}
	d := &podDialer{cluster: c, away: ErrNoController, find: c.leaderPod, pod: pod}
	return web.NewControllerClient("pod "+pod.Name, timeout, d.dial), nil
}

// leaderPod is the pod whose name begins the identity of the leader. It is asked however old
// its last renewal is: a clock may be off, and one that does not lead says so itself.
func (c *Cluster) leaderPod(ctx context.Context) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	leader := c.controller(ctx)
	if leader.Leader == "" {
		return nil, fmt.Errorf("%w: %s", ErrNoController, leader.Problem)
	}
	host := leader.Leader
	if i := strings.LastIndexByte(host, '_'); i >= 0 {
		host = host[:i]
	}
	list, err := c.Core.Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: controllerLabels})
	if err != nil {
		return nil, told("the controllers' pods", err, viewer())
	}
	i := slices.IndexFunc(list.Items, func(p corev1.Pod) bool { return p.Name == host })
	switch {
	case i < 0 && leader.Problem != "":
		return nil, fmt.Errorf("%w: %s", ErrNoController, leader.Problem)
	case i < 0:
		return nil, fmt.Errorf("%w: the leader %s is no pod of namespace %s: if it runs outside of the cluster, ask on its machine (http://127.0.0.1:9774/)", ErrNoController, leader.Leader, Namespace)
	case running(&list.Items[i]) == 0:
		return nil, fmt.Errorf("%w: the leader's pod %s does not run: wait until another replica leads, or kubectl -n %s describe pod %s", ErrNoController, host, Namespace, host)
	}
	return &list.Items[i], nil
}

// NodeOf is the node whose agent can explain what became of a pod of a name. A name may be
// used again, as those of a StatefulSet are: where an agent has evicted another pod of the
// name than the present one, it is the node of that pod, and note says which is which.
func (c *Cluster) NodeOf(ctx context.Context, namespace, name string) (node, note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	title := fmt.Sprintf("pod %s/%s", namespace, name)
	earlier, unread := c.toldOf(ctx, namespace, name)
	pod, err := c.Core.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		pod = nil
	case err != nil:
		return "", "", told(title, err, View(namespace))
	}
	switch node, note = explainedOn(pod, earlier); {
	case node != "" && unread != nil:
		return node, "whether an agent has evicted an earlier " + title + " is not known: " + unread.Error(), nil
	case node != "":
		return node, note, nil
	case unread != nil:
		return "", "", unread
	case pod != nil:
		return "", "", fmt.Errorf("%s is not scheduled to a node yet", title)
	}
	return "", "", fmt.Errorf("%s does not exist, and no agent has an Event about it: look for its name (-n NAMESPACE), or name its node (--node NODE), without which no pod is found by its UID or the ID of a decision", title)
}

// toldOf is what the agents' Events tell of pods of a name: the newest about an eviction,
// else the newest; nil: nothing.
func (c *Cluster) toldOf(ctx context.Context, namespace, name string) (*corev1.Event, error) {
	events, err := c.Core.Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.AndSelectors(
		fields.OneTermEqualSelector("involvedObject.kind", "Pod"), fields.OneTermEqualSelector("involvedObject.name", name),
		fields.OneTermEqualSelector("source", "plimsoll-agent"),
	).String()})
	if err != nil {
		return nil, told(fmt.Sprintf("Events of pod %s/%s", namespace, name), err, View(namespace))
	}
	var newest *corev1.Event
	for i := range events.Items {
		e := &events.Items[i]
		switch {
		case e.Source.Host == "":
		case newest == nil, evicts(e) && !evicts(newest), evicts(e) == evicts(newest) && newest.LastTimestamp.Before(&e.LastTimestamp):
			newest = e
		}
	}
	return newest, nil
}

// evicts: the Event is about a pod that was evicted, or is to be.
func evicts(e *corev1.Event) bool {
	return e.Reason == "PressureEviction" || e.Reason == "PressureEvictionInProgress"
}

// explainedOn is the node of a pod, or of an earlier one of its name that an Event is about.
// Both may be nil.
func explainedOn(pod *corev1.Pod, e *corev1.Event) (node, note string) {
	switch {
	case pod == nil && e == nil:
		return "", ""
	case pod == nil:
		return e.Source.Host, ""
	case e == nil || pod.UID == e.InvolvedObject.UID || pod.Spec.NodeName != "" && (!evicts(e) || pod.Spec.NodeName == e.Source.Host):
		return pod.Spec.NodeName, ""
	}
	present := "is on no node yet"
	if pod.Spec.NodeName != "" {
		present = fmt.Sprintf("is on node %s: --node %[1]s explains that one", pod.Spec.NodeName)
	}
	return e.Source.Host, fmt.Sprintf("explained is the earlier pod of this name (UID %s, Event %s on node %s); the present one (UID %s) %s", e.InvolvedObject.UID, e.Reason, e.Source.Host, pod.UID, present)
}

// running is 1 for a pod that can be asked, else 0.
func running(pod *corev1.Pod) int {
	if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
		return 1
	}
	return 0
}

func webPort(pod *corev1.Pod) int {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == "metrics" {
				return int(p.ContainerPort)
			}
		}
	}
	return defaultPort
}

// dial connects to the daemon's port on the loopback address of its pod.
func (c *Cluster) dial(ctx context.Context, pod *corev1.Pod, away error) (net.Conn, error) {
	type dialed struct {
		conn net.Conn
		err  error
	}
	done := make(chan dialed, 1)
	go func() { // client-go's dialers take no context
		conn, err := c.forward(pod, away)
		done <- dialed{conn, err}
	}()
	select {
	case d := <-done:
		if d.err != nil {
			return nil, told(fmt.Sprintf("connect to pod %s through the API server", pod.Name), d.err, viewer())
		}
		return d.conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Cluster) forward(pod *corev1.Pod, away error) (net.Conn, error) {
	url := c.Core.RESTClient().Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.how)
	if err != nil {
		return nil, err
	}
	old := spdy.NewDialer(upgrader, &http.Client{Transport: transport, Timeout: requestTimeout}, http.MethodPost, url)
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(url, c.how)
	if err != nil {
		return nil, err
	}
	both := portforward.NewFallbackDialer(tunnel, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	parent, _, err := both.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	conn, err := streams(parent, webPort(pod), away)
	if err != nil {
		return nil, errors.Join(err, parent.Close())
	}
	return conn, nil
}

// streams opens the two streams of a forwarded connection: its errors and its data.
func streams(parent httpstream.Connection, port int, away error) (net.Conn, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failures, err := parent.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	if err := failures.Close(); err != nil { // nothing is written into it
		return nil, err
	}
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := parent.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	f := &forwarded{Stream: data, parent: parent, away: away, failed: make(chan string, 1)}
	go func() {
		text, _ := io.ReadAll(io.LimitReader(failures, maxFailure))
		f.failed <- strings.TrimSpace(string(text))
	}()
	return f, nil
}

// maxFailure bounds what a kubelet tells of a failure.
const maxFailure = 4 << 10

// failurePatience is how long the reason of an early end is waited for.
const failurePatience = time.Second

// forwarded is a connection over a pair of streams. It has no deadlines: the client's
// timeout closes it.
type forwarded struct {
	httpstream.Stream

	parent httpstream.Connection
	away   error
	failed chan string
	read   bool // some data
}

// Read reports why the other side ended the connection without an answer.
func (f *forwarded) Read(p []byte) (int, error) {
	n, err := f.Stream.Read(p)
	f.read = f.read || n > 0
	if n > 0 || err == nil || f.read {
		return n, err
	}
	select {
	case why := <-f.failed:
		if why != "" {
			return 0, fmt.Errorf("%w: %s", f.away, why)
		}
	case <-time.After(failurePatience):
	}
	return n, err
}

func (f *forwarded) Close() error { return errors.Join(f.Reset(), f.parent.Close()) }

func (f *forwarded) LocalAddr() net.Addr              { return address{} }
func (f *forwarded) RemoteAddr() net.Addr             { return address{} }
func (f *forwarded) SetDeadline(time.Time) error      { return nil }
func (f *forwarded) SetReadDeadline(time.Time) error  { return nil }
func (f *forwarded) SetWriteDeadline(time.Time) error { return nil }

// address of a forwarded connection.
type address struct{}

func (address) Network() string { return "portforward" }
func (address) String() string  { return "pod" }
