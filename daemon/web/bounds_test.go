package web

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
