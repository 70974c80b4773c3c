package cluster

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestApartReachesOnlyGivenAddresses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces take root")
	}
	listen := func() net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte("hello from outside\n"))
				_ = conn.Close()
			}
		}()
		return l
	}
	open, closed := listen().Addr().(*net.TCPAddr), listen().Addr().(*net.TCPAddr)
	log := filepath.Join(t.TempDir(), "log")
	script := `cat <"/dev/tcp/127.0.0.1/$1"; cat <"/dev/tcp/127.0.0.1/$2"; echo end`
	said := func(apart bool) string {
		p := &Process{name: "bash", path: "/bin/bash", log: log, args: []string{"-c", script, "bash", open.String()[len("127.0.0.1:"):], closed.String()[len("127.0.0.1:"):]}}
		if apart {
			p.Apart(open.String())
		}
		require.NoError(t, os.RemoveAll(log))
		require.NoError(t, p.Start())
		<-p.child.ended
		return p.Log()
	}
	assert.Equal(t, "hello from outside\nhello from outside\nend\n", said(false))
	apart := said(true)
	assert.Contains(t, apart, "hello from outside\n")
	assert.Contains(t, apart, "Connection refused")
	assert.Contains(t, apart, "end\n")
}
