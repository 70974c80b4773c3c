package controller

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/plimsoll-dev/plimsoll/daemon/web"
)

// connection is what the requests of all loops and of the election show of the API
// server: whether it answers, and what it refuses. A problem begins with the first
// request that shows it and ends with the first one that shows the opposite, or when
// none has shown it for problemLife: it is not asked for any more.
type connection struct {
	log *slog.Logger

	mu       sync.Mutex // guards what follows
	problems map[question]problem
	logged   map[web.APIProblemKind]time.Time // when a kind was told last
}

// problem, and whether it was logged.
type problem struct {
	web.APIProblem
	told bool
	seen time.Time // last
}

// question is what was asked; empty for a problem of all requests.
type question struct {
	kind    web.APIProblemKind
	request string
}

const (
	// maxProblems bounds what is told: many kinds may be refused at once.
	maxProblems = 32
	// logInterval is how often one kind of problem is logged: an API server that
	// answers now and then begins and ends it with each request.
	logInterval = time.Minute
	// problemLife is longer than any loop waits before it asks again.
	problemLife = 2 * time.Minute
	// maxStatus bounds how much of an answer that refuses is read.
	maxStatus = 16 << 10
)

// Wrap makes an API server's transport tell.
func (c *connection) Wrap(by http.RoundTripper) http.RoundTripper { return observed{c, by} }

type observed struct {
	connection *connection
	base       http.RoundTripper
}

func (o observed) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := o.base.RoundTrip(r)
	switch {
	case err == nil:
		o.connection.answered(r, response)
	case !errors.Is(r.Context().Err(), context.Canceled): // else the controller itself ended it
		// The client's own timeout shows as either, as the timer or the context is first.
		if errors.Is(r.Context().Err(), context.DeadlineExceeded) || strings.Contains(err.Error(), "request canceled") {
			err = fmt.Errorf("no answer in time: %w", err)
		}
		o.connection.begin(question{kind: web.APIUnreachable}, r.URL.Host+": "+err.Error())
	}
	return response, err
}

// answered takes an answer. Writes other than that of the election are told by the
// loop that makes them: their refusal may be about the object.
func (c *connection) answered(r *http.Request, response *http.Response) {
	c.end(question{kind: web.APIUnreachable})
	if response.StatusCode == http.StatusUnauthorized {
		c.begin(question{kind: web.APIUnauthenticated}, message(response))
		return
	}
	c.end(question{kind: web.APIUnauthenticated})
	request := describe(r)
	if r.Method != http.MethodGet && !strings.Contains(request, LeaseName) && !strings.HasPrefix(request, "create leases") {
		return
	}
	is := web.APIProblemKind("")
	switch {
	case response.StatusCode == http.StatusForbidden:
		is = web.APIForbidden
	case response.StatusCode == http.StatusNotFound && r.Method == http.MethodPost:
		is = web.APINamespace
	case response.StatusCode >= http.StatusInternalServerError:
		is = web.APIFailing
	}
	about := request
	if strings.Contains(request, LeaseName) { // the election may never ask again as it did: it reads the Lease only at times
		_, about, _ = strings.Cut(request, " ")
	}
	for _, kind := range []web.APIProblemKind{web.APIForbidden, web.APINamespace, web.APIFailing} {
		if kind != is {
			c.end(question{kind, about})
		}
	}
	if is != "" {
		c.begin(question{is, about}, request+": "+message(response))
	}
}

// begin notes a problem, or its newest cause.
func (c *connection) begin(q question, cause string) {
	now := time.Now()
	c.mu.Lock()
	c.forget(now)
	p, known := c.problems[q]
	if !known && len(c.problems) >= maxProblems {
		c.mu.Unlock()
		return
	}
	if c.problems == nil {
		c.problems, c.logged = map[question]problem{}, map[web.APIProblemKind]time.Time{}
	}
	tell := false
	if !known {
		tell = q.request != "" || now.Sub(c.logged[q.kind]) >= logInterval
		p = problem{APIProblem: web.APIProblem{Kind: q.kind, Since: now}, told: tell}
	}
	if tell {
		c.logged[q.kind] = now
	}
	p.Cause, p.seen = cause, now
	c.problems[q] = p
	c.mu.Unlock()
	if tell {
		c.log.Warn("the controller cannot work; retrying", "problem", q.kind.Text(), "error", cause, "todo", q.kind.Remedy())
	}
}

// forget drops what is not asked for any more.
func (c *connection) forget(now time.Time) {
	maps.DeleteFunc(c.problems, func(_ question, p problem) bool { return now.Sub(p.seen) > problemLife })
}

func (c *connection) end(q question) {
	c.mu.Lock()
	p, known := c.problems[q]
	delete(c.problems, q)
	c.mu.Unlock()
	if known && p.told {
		c.log.Info("a problem of the controller has ended", "problem", p.Kind.Text(), "request", q.request, "after", time.Since(p.Since).Round(time.Millisecond))
	}
}

// list is the problems at present, the one that explains most first.
func (c *connection) list() []web.APIProblem {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(time.Now())
	var list []web.APIProblem
	for _, p := range c.problems {
		list = append(list, p.APIProblem)
	}
	kinds := web.APIProblemKinds()
	slices.SortFunc(list, func(a, b web.APIProblem) int {
		return cmp.Or(slices.Index(kinds, a.Kind)-slices.Index(kinds, b.Kind), a.Since.Compare(b.Since), strings.Compare(a.Cause, b.Cause))
	})
	return list
}

// describe is a request in Kubernetes' words: get leases plimsoll-system/plimsoll-controller.
// Of many objects of one kind it names none, and a watch is a list that goes on.
func describe(r *http.Request) string {
	verb := map[string]string{http.MethodGet: "list", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[r.Method]
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch { // after the version
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return strings.ToLower(r.Method) + " " + r.URL.Path
	}
	namespace := ""
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = " in namespace "+parts[1], parts[2:]
	}
	what := parts[0]
	if len(parts) > 1 && verb == "list" {
		verb = "get"
	}
	if len(parts) > 1 && parts[1] == LeaseName {
		what += " " + LeaseName
	}
	return verb + " " + what + namespace
}

// message of an answer that refuses. The client still reads the whole body.
func message(response *http.Response) string {
	begin, _ := io.ReadAll(io.LimitReader(response.Body, maxStatus)) // what could not be read is no message
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), response.Body), response.Body}
	if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(begin, nil, nil); err == nil {
		if status, is := object.(*metav1.Status); is && status.Message != "" {
			return status.Message
		}
	}
	return response.Status
}
