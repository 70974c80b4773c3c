package web

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// What a client may have at a time. Each is bounded: an unknown client must not fill the memory
// of the agent, or the heartbeat would end with the agent.
const (
	// connectionsPerClient is how many connections an address may have. One more closes its
	// oldest: the newest may be a probe of the kubelet, whose address others of the node share.
	connectionsPerClient = 128
	// streamsPerConnection is how many requests of one HTTP/2 connection may be under way.
	streamsPerConnection = 16
	// scrapesPerClient and maxScrapes are how many answers of /metrics may be under way, to
	// one address and to all, and scrapeTimeout is how long one may be read.
	scrapesPerClient = 8
	maxScrapes       = 32
	scrapeTimeout    = 10 * time.Second
)

// clientOf is the address of a client without its port; what has none is one client.
func clientOf(address string) string {
	host, _, _ := net.SplitHostPort(address) // empty on an error
	return host
}

// boundedListener bounds the connections of each client.
type boundedListener struct {
	net.Listener

	mu   sync.Mutex               // guards open
	open map[string][]*clientConn // by client, oldest first
}

// clientConn is a connection that counts for its client until it is closed.
type clientConn struct {
	net.Conn
	client string
	of     *boundedListener
}

// Accept closes the oldest connection of a client that has too many.
func (l *boundedListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &clientConn{accepted, clientOf(accepted.RemoteAddr().String()), l}
	if surplus := l.add(c); surplus != nil {
		_ = surplus.Close()
	}
	return c, nil
}

func (l *boundedListener) add(c *clientConn) (surplus *clientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[string][]*clientConn{}
	}
	list := append(l.open[c.client], c)
	l.open[c.client] = list
	if len(list) > connectionsPerClient {
		return list[0]
	}
	return nil
}

// Close implements net.Conn.
func (c *clientConn) Close() error {
	c.of.remove(c)
	return c.Conn.Close()
}

func (l *boundedListener) remove(c *clientConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.DeleteFunc(l.open[c.client], func(o *clientConn) bool { return o == c })
	if l.open[c.client] = list; len(list) == 0 {
		delete(l.open, c.client)
	}
}

// boundedScrapes bounds the answers of a handler that are under way: each has a text of its own, for
// as long as its client reads.
type boundedScrapes struct {
	next http.Handler

	mu  sync.Mutex // guards of and all
	of  map[string]int
	all int
}

func (s *boundedScrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client := clientOf(r.RemoteAddr)
	if !s.begin(client) {
		http.Error(w, "too many scrapes are under way", http.StatusServiceUnavailable)
		return
	}
	defer s.end(client)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTimeout)) // else that of the server holds
	s.next.ServeHTTP(w, r)
}

func (s *boundedScrapes) begin(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == maxScrapes || s.of[client] == scrapesPerClient {
		return false
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.all++
	s.of[client]++
	return true
}

func (s *boundedScrapes) end(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[client]--; s.of[client] == 0 {
		delete(s.of, client)
	}
}
