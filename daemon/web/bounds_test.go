package web

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/daemon/guard"
	"github.com/plimsoll-dev/plimsoll/daemon/view"
	"github.com/plimsoll-dev/plimsoll/evict"
)

func TestConnectionsOfClientBounded(t *testing.T) {
	listening, err := (&Server{Log: slog.New(slog.DiscardHandler)}).Listen(t.Context(), "127.0.0.1:0", Exposure{})
	require.NoError(t, err)
	assert.Equal(t, streamsPerConnection, listening.server.HTTP2.MaxConcurrentStreams)
	l, is := listening.Listener.(*boundedListener)
	require.True(t, is)
	var echoes sync.WaitGroup
	echoes.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			echoes.Go(func() {
				_, _ = io.Copy(c, c) // until it is closed, at whichever end
				_ = c.Close()
			})
		}
	})
	var clients []net.Conn
	dial := func(from byte) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
		c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		require.NoError(t, err)
		clients = append(clients, c)
		return c
	}
	open := func(c net.Conn) bool {
		_, err := c.Write([]byte{'.'})
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		return err == nil
	}
	other, first := dial(2), dial(1)
	require.True(t, open(other))
	require.True(t, open(first))
	for range connectionsPerClient - 1 {
		require.True(t, open(dial(1)))
	}
	assert.True(t, open(first), "so many are kept")
	assert.True(t, open(dial(1)), "a new one is served")
	assert.False(t, open(first), "and the oldest is closed")
	assert.True(t, open(other), "that of another client is not")
	for _, c := range clients {
		_ = c.Close()
	}
	require.NoError(t, l.Close())
	echoes.Wait()
	assert.Empty(t, l.open, "nothing is kept of what is closed")
}

// The header of a request is bounded on each address, with authentication and without.
func TestHeaderBounded(t *testing.T) {
	server := &Server{
		State: func() *view.State { return nil }, Healthy: func() error { return nil }, Log: slog.New(slog.DiscardHandler),
		Decisions: func() []evict.Decision { return nil },
	}
	configured := filepath.Join(t.TempDir(), "web.yaml")
	require.NoError(t, os.WriteFile(configured, []byte("{}\n"), 0o600))
	for name, x := range map[string]Exposure{
		"without authentication": {},
		"with authentication":    {Auth: &guard.Authenticator{File: configured, Log: server.Log}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := server.Listen(t.Context(), "127.0.0.1:0", x)
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- l.Serve(ctx) }()
			for size, want := range map[int]int{32 << 10: http.StatusOK, 200 << 10: http.StatusRequestHeaderFieldsTooLarge} {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL()+"-/healthy", http.NoBody)
				require.NoError(t, err)
				r.Header.Set("X-Long", strings.Repeat("x", size))
				answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
				require.NoError(t, err)
				assert.NoError(t, answer.Body.Close())
				assert.Equal(t, want, answer.StatusCode, "%d bytes", size)
			}
			stop()
			require.NoError(t, <-served)
		})
	}
}

func TestScrapesUnderWayBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan struct{})
		s := &boundedScrapes{next: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-read })}
		scrape := func(client string) (status func() int) {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
			r.RemoteAddr = client + ":4711"
			ended := make(chan struct{})
			go func() { defer close(ended); s.ServeHTTP(w, r) }()
			synctest.Wait()
			return func() int { <-ended; return w.Code }
		}
		var all []func() int
		for _, client := range []string{"a", "b", "c", "d"} {
			for range scrapesPerClient {
				all = append(all, scrape(client))
			}
			assert.Equal(t, http.StatusServiceUnavailable, scrape(client)(), client)
		}
		require.Len(t, all, maxScrapes)
		assert.Equal(t, http.StatusServiceUnavailable, scrape("e")(), "all together")
		close(read)
		for _, status := range all {
			assert.Equal(t, http.StatusOK, status())
		}
		assert.Equal(t, http.StatusOK, scrape("e")())
		assert.Empty(t, s.of)
	})
}
