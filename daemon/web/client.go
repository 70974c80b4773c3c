package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// ErrNoAgent means that no agent listens on the socket.
var ErrNoAgent = errors.New("no agent is listening")

// errNoSampleYet: the agent is running and its first tick has not ended.
var errNoSampleYet = errors.New("the agent has no sample yet")

// requestTimeout of one request to the agent on this machine.
const requestTimeout = 5 * time.Second

// maxAnswer is far more than the snapshot of 10,000 workloads.
const maxAnswer = 256 << 20

// Client calls the API of an agent, on its local socket or over another connection, or
// that of a controller.
type Client struct {
	of    string // what is asked: an agent or a controller
	where string // how messages call where it is
	local bool   // where is the socket of this machine's agent
	http  http.Client
}

// The daemons that are asked.
const (
	agentDaemon      = "agent"
	controllerDaemon = "controller"
)

// Dial makes connections to the loopback address of what is asked.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

func newClient(of, where string, timeout time.Duration, dial Dial) *Client {
	return &Client{of: of, where: where, http: http.Client{Timeout: timeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// NewClientOver asks an agent; where is how messages call it.
func NewClientOver(where string, timeout time.Duration, dial Dial) *Client {
	return newClient(agentDaemon, where, timeout, dial)
}

// NewControllerClient asks a controller.
func NewControllerClient(where string, timeout time.Duration, dial Dial) *Client {
	return newClient(controllerDaemon, where, timeout, dial)
}

// Errors of a daemon that answers, and not to what was asked.
var (
	// ErrUnknownPath: it is of a version without it.
	ErrUnknownPath = errors.New("is of a version that cannot answer this: upgrade it")
	// ErrCredentials: its web.config.file or web.tokenReview.
	ErrCredentials = errors.New("requires credentials on its web address (web.config.file or web.tokenReview), which are not sent there: ask on its machine")
)

// NewClient uses the socket at path.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	c := newClient(agentDaemon, path, requestTimeout, dial)
	c.local = true
	return c
}

// State is the agent's current state. ErrNoAgent if no agent listens.
func (c *Client) State(ctx context.Context) (*view.State, error) {
	var p view.Pressure
	if err := c.get(ctx, "/api/v1/pressure", &p); err != nil {
		return nil, err
	}
	var s snapshot.Snapshot
	if err := c.get(ctx, "/api/v1/snapshot", &s); err != nil {
		return nil, err
	}
	return p.State(&s), nil
}

// Ping returns nil if an agent is running, ErrNoAgent if no agent listens.
func (c *Client) Ping(ctx context.Context) error {
	var ok json.RawMessage
	err := c.get(ctx, "/api/v1/decisions", &ok)
	if errors.Is(err, errNoSampleYet) {
		return nil
	}
	return err
}

// Plugins of the agent. ErrNoAgent if no agent listens.
func (c *Client) Plugins(ctx context.Context) (Plugins, error) {
	var list Plugins
	err := c.get(ctx, "/api/v1/plugins", &list)
	return list, err
}

// Examination is what plimsoll doctor finds in the agent's process, as the JSON of its
// rows.
func (c *Client) Examination(ctx context.Context, into any) error {
	return c.get(ctx, "/api/v1/doctor", into)
}

// Decisions stored by the agent, newest first. ErrNoAgent if no agent listens.
func (c *Client) Decisions(ctx context.Context) ([]evict.Decision, error) {
	var body Decisions
	err := c.get(ctx, "/api/v1/decisions", &body)
	return body.Decisions, err
}

// Backups is what a controller knows of its queues and nights.
func (c *Client) Backups(ctx context.Context) (Backups, error) {
	var b Backups
	err := c.get(ctx, "/api/v1/backups", &b)
	return b, err
}

// unanswered is the error of a request without an answer. Over another connection than the
// socket it is that of the way to the daemon, which tells nothing about the daemon.
func (c *Client) unanswered(err error) error {
	request, wrapped := errors.AsType[*url.Error](err)
	switch {
	case !c.local && wrapped: // its URL says nothing
		return fmt.Errorf("ask the %s: %w", c.of, request.Err)
	case !c.local:
		return fmt.Errorf("ask the %s: %w", c.of, err)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w on %s", ErrNoAgent, c.where)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("ask the %s: %w", c.of, &os.PathError{Op: "connect", Path: c.where, Err: syscall.EACCES})
	}
	return fmt.Errorf("ask the %s: %w", c.of, innermost(err))
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1"+path, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unanswered(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1)) // another node's agent may answer without end
	switch {
	case err != nil:
		return fmt.Errorf("ask the %s: %w", c.of, err)
	case len(body) > maxAnswer:
		return fmt.Errorf("ask the %s: %s: its answer is larger than %d MiB", c.of, path, maxAnswer>>20)
	case resp.StatusCode == http.StatusServiceUnavailable:
		return errNoSampleYet
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("the %s %w (%s)", c.of, ErrUnknownPath, path)
	case resp.StatusCode == http.StatusUnauthorized, bytes.Contains(body, []byte("HTTP request to an HTTPS server")):
		return fmt.Errorf("the %s %w", c.of, ErrCredentials)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("ask the %s: %s: %s", c.of, path, strings.TrimSpace(string(body)))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("ask the %s: %s: %w", c.of, path, err)
	}
	return nil
}
