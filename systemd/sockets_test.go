package systemd_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/systemd"
)

// TestMain is also the service that is handed sockets: it says what it found,
// and greets the first that connects to each.
func TestMain(m *testing.M) {
	if os.Getenv("BE_A_SERVICE") == "" {
		os.Exit(m.Run())
	}
	list, err := systemd.Listeners()
	fmt.Println(len(list), err)
	for _, l := range list {
		c, err := l.Accept()
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		_, _ = io.WriteString(c, "welcome")
		_ = c.Close()
	}
	again, err := systemd.Listeners()
	fmt.Println(len(again), err)
	os.Exit(0)
}

// service runs this program as systemd does, which sets LISTEN_PID between fork
// and exec: a shell stands in for that.
func service(t *testing.T, sockets ...*os.File) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), "sh", "-c", `LISTEN_PID=$$ exec "$0"`, self)
	c.Env = append(os.Environ(), "BE_A_SERVICE=1", fmt.Sprintf("LISTEN_FDS=%d", len(sockets)), "LISTEN_FDNAMES="+strings.Repeat("web:", len(sockets)))
	c.ExtraFiles = sockets
	return c
}

func TestListenersServedOnce(t *testing.T) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	file, err := l.File()
	require.NoError(t, err)
	c := service(t, file)
	// The socket listens before there is a service: who connects waits for it.
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	out, err := c.Output()
	require.NoError(t, err)
	assert.Equal(t, "1 <nil>\n0 <nil>\n", string(out))
	greeting, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "welcome", string(greeting))
}

func TestListenersNotASocket(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	out, err := service(t, null).Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), "0 listen on systemd socket web: ")
}

func TestListenersNone(t *testing.T) {
	list, err := systemd.Listeners()
	require.NoError(t, err)
	assert.Empty(t, list)
}
