package vm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// Run runs a shell command in the machine as root and gives its standard
// output, also when it fails. An error holds its standard error and wraps an
// *exec.ExitError with its status, or 255 when the machine was not reached.
func (m *VM) Run(ctx context.Context, command string) (string, error) {
	out, err := m.command(ctx, "ssh", "-n", "root@"+m.host, command)
	if err != nil {
		return out, fmt.Errorf("machine %s: run %q: %w", m.options.Name, command, err)
	}
	return out, nil
}

// Get asks an HTTP server that listens in the machine on an address of its own,
// such as 127.0.0.1:9773, and gives the answer when it is 200. Nothing is started
// in the machine for it, as each command is, which costs an emulated one a tenth
// of a second of its processor.
func (m *VM) Get(ctx context.Context, address, path string) ([]byte, error) {
	b, err := m.get(ctx, address, path)
	if err != nil {
		return nil, fmt.Errorf("machine %s: GET http://%s%s: %w", m.options.Name, address, path, err)
	}
	return b, nil
}

func (m *VM) get(ctx context.Context, address, path string) ([]byte, error) {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return m.Dial(ctx, address) },
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	return b, err
}

// Dial connects to a TCP address as the machine reaches it, such as one of its own or
// of a pod, by a socket that ssh forwards.
func (m *VM) Dial(ctx context.Context, address string) (net.Conn, error) {
	socket, err := m.forward(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("machine %s: dial %s: %w", m.options.Name, address, err)
	}
	return new(net.Dialer).DialContext(ctx, "unix", socket)
}

// forward is the socket of an address in the machine.
func (m *VM) forward(ctx context.Context, address string) (socket string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if socket, is := m.forwards[address]; is {
		return socket, nil
	}
	socket = filepath.Join(m.dir, "to-"+strings.ReplaceAll(address, ":", "-")) // a colon would end it, to ssh
	if _, err := m.command(ctx, "ssh", "-O", "forward", "-L", socket+":"+address, "root@"+m.host); err != nil {
		return "", err
	}
	if m.forwards == nil {
		m.forwards = map[string]string{}
	}
	m.forwards[address] = socket
	return socket, nil
}

// Push copies a file or a directory of the host to the path remote.
func (m *VM) Push(ctx context.Context, local, remote string) error {
	if _, err := m.command(ctx, "scp", "-q", "-r", local, "root@"+m.host+":"+remote); err != nil {
		return fmt.Errorf("machine %s: push %s to %s: %w", m.options.Name, local, remote, err)
	}
	return nil
}

// Pull copies a file or a directory of the machine to the path local.
func (m *VM) Pull(ctx context.Context, remote, local string) error {
	if _, err := m.command(ctx, "scp", "-q", "-r", "root@"+m.host+":"+remote, local); err != nil {
		return fmt.Errorf("machine %s: pull %s to %s: %w", m.options.Name, remote, local, err)
	}
	return nil
}

// Console is everything the machine has written on its serial console.
func (m *VM) Console() []byte {
	b, _ := os.ReadFile(filepath.Join(m.dir, "console.log")) // not there yet: nothing said yet
	return b
}

// Monitor gives QEMU one command of its human monitor, such as
// "block_set_io_throttle vd1 0 0 0 50 0 0", and returns what it answers, which
// for a command that did as it was told is mostly nothing.
func (m *VM) Monitor(ctx context.Context, command string) (string, error) {
	ctx, cancel := deadline.Context(ctx, 30*time.Second)
	defer cancel()
	answer, err := m.monitor(ctx, command)
	if err != nil {
		return "", fmt.Errorf("machine %s: monitor %q: %w", m.options.Name, command, err)
	}
	return answer, nil
}

func (m *VM) monitor(ctx context.Context, command string) (string, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", filepath.Join(m.dir, "monitor"))
	if err != nil {
		return "", err
	}
	defer c.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(end); err != nil {
			return "", err
		}
	}
	if _, err := untilPrompt(c); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte(command + "\n")); err != nil {
		return "", err
	}
	said, err := untilPrompt(c)
	// The first line is the command, letter by letter as it was typed.
	_, answer, _ := strings.Cut(strings.ReplaceAll(said, "\r", ""), "\n")
	return answer, err
}

// untilPrompt reads up to the monitor's next prompt and leaves that out.
func untilPrompt(c net.Conn) (string, error) {
	const prompt = "(qemu) "
	var said []byte
	buf := make([]byte, 4096)
	for !bytes.HasSuffix(said, []byte(prompt)) {
		n, err := c.Read(buf)
		if err != nil {
			return "", err
		}
		said = append(said, buf[:n]...)
	}
	return string(bytes.TrimSuffix(said, []byte(prompt))), nil
}

// command runs ssh or scp over one connection that stays open between commands
// and ends with the machine.
func (m *VM) command(ctx context.Context, name string, args ...string) (string, error) {
	settings := []string{
		"-F", "none", "-i", m.image.file("id_ed25519"),
		"-o", "Port=" + strconv.Itoa(m.port), "-o", "LogLevel=ERROR",
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes",
		"-o", "ConnectTimeout=30", "-o", "Ciphers=aes128-gcm@openssh.com,chacha20-poly1305@openssh.com",
		"-o", "ControlMaster=auto", "-o", "ControlPersist=yes", "-o", "ControlPath=" + filepath.Join(m.dir, "ssh"),
	}
	cmd := exec.CommandContext(ctx, name, append(settings, args...)...)
	// The first command leaves the connection's process behind with our pipes.
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil && stderr.Len() > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), err
}

// hangUp ends the connection's process.
func (m *VM) hangUp() {
	ctx, cancel := deadline.Context(context.Background(), 10*time.Second)
	defer cancel()
	_, _ = m.command(ctx, "ssh", "-O", "exit", "root@"+m.host) // nothing to end: no command has run
}
