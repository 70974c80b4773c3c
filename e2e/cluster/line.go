package cluster

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Line stands in for the network between an API server and etcd, and can be slow
// in one direction. It passes on whole messages of etcd's API, in order.
type Line struct {
	// Events are what etcd tells the API server of changes: all that this knows by
	// itself comes that way. Writes are what it asks etcd to store. Nothing else is
	// ever late.
	Events, Writes Delay

	mu      sync.Mutex               // guards waiting
	waiting map[*http.Request][]byte // the messages of writes that wait

	server *http.Server
	tasks  sync.WaitGroup
}

// Delay of messages; the zero value: none.
type Delay struct {
	mu      sync.Mutex // guards both
	by      time.Duration
	changed chan struct{}
}

// Set how late messages come, those that are on their way, too.
func (d *Delay) Set(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by = by; d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

func (d *Delay) get() (by time.Duration, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return d.by, d.changed
}

// pass waits until a message that was sent then has come.
func (d *Delay) pass(ctx context.Context, sent time.Time) error {
	for {
		by, changed := d.get()
		left := time.Until(sent.Add(by))
		if left <= 0 {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(left):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// The methods of etcd's API.
const (
	etcdWatch = "/etcdserverpb.Watch/Watch"
	etcdTxn   = "/etcdserverpb.KV/Txn"
)

// newLine to etcd, and where the API server finds it, on this host.
func newLine(ctx context.Context, host, etcd string) (l *Line, address string, err error) {
	to, err := url.Parse(etcd)
	if err != nil {
		return nil, "", err
	}
	door, err := new(net.ListenConfig).Listen(ctx, "tcp", host+":0")
	if err != nil {
		return nil, "", err
	}
	var plain http.Protocols
	plain.SetUnencryptedHTTP2(true)
	l = &Line{waiting: map[*http.Request][]byte{}}
	l.server = &http.Server{
		Protocols: &plain, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 10000}, ErrorLog: log.New(io.Discard, "", 0),
		Handler: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
			Transport: lineTransport{l, &http.Transport{Protocols: &plain}}, ModifyResponse: l.slowEvents,
			// The API server sees that the connection broke, as it would without us.
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		},
	}
	l.tasks.Go(func() { _ = l.server.Serve(door) }) // until it is closed
	return l, "http://" + door.Addr().String(), nil
}

// lineTransport has writes wait before they are sent on.
type lineTransport struct {
	*Line
	http.RoundTripper
}

func (t lineTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == etcdTxn {
		message, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(message))
		if err := t.wait(r, message); err != nil {
			return nil, err
		}
	}
	return t.RoundTripper.RoundTrip(r)
}

func (l *Line) wait(r *http.Request, message []byte) error {
	l.mu.Lock()
	l.waiting[r] = message
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waiting, r)
	}()
	return l.Writes.pass(r.Context(), time.Now())
}

// Waits tells whether a write waits whose message has that text, such as a part of the key
// of an object.
func (l *Line) Waits(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, message := range l.waiting {
		if bytes.Contains(message, []byte(text)) {
			return true
		}
	}
	return false
}

// part of a body, or what ended it.
type part struct {
	at   time.Time
	text []byte
	err  error
}

// slowEvents has the events of a watch wait before they are handed over.
func (l *Line) slowEvents(r *http.Response) error {
	if r.Request.URL.Path != etcdWatch {
		return nil
	}
	ctx, body := r.Request.Context(), r.Body
	parts := make(chan part, 1<<14)
	out, in := io.Pipe()
	l.tasks.Go(func() {
		defer close(parts)
		take(ctx, body, parts)
	})
	l.tasks.Go(func() { _ = in.CloseWithError(l.deliver(ctx, parts, in)) }) // it never fails
	r.Body = out
	return nil
}

// take the parts of a body as they come.
func take(ctx context.Context, body io.Reader, parts chan<- part) {
	for {
		text := make([]byte, 16<<10)
		n, err := body.Read(text)
		select {
		case parts <- part{time.Now(), text[:n], err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func (l *Line) deliver(ctx context.Context, parts <-chan part, to io.Writer) error {
	for p := range parts {
		if err := l.Events.pass(ctx, p.at); err != nil {
			return err
		}
		if _, err := to.Write(p.text); err != nil {
			return err
		}
		if p.err != nil {
			return p.err
		}
	}
	return ctx.Err()
}

func (l *Line) close() error {
	err := l.server.Close()
	l.tasks.Wait()
	return err
}
