// Package vm gives a test a throw-away machine: a Debian under QEMU with a
// kernel, a systemd and cgroups of its own, so that a test may starve it of
// memory, boot it without PSI or end it in the middle. Nothing but loopback is
// used: the guest reaches neither the host nor a network.
//
// # Usage
//
//	m := vm.Start(t, vm.Options{Name: "shortage", Disks: 1})
//	out, err := m.Run(ctx, "uname -r")
//
// The first start builds the image into the user's cache, for some minutes. The
// processor is emulated: the guest is 8 to 150 times slower than the host, so
// tests ask it for behaviour, never for speed.
//
// # Concurrency
//
// Several machines may run at once, and one may be used from several goroutines.
package vm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// Options of a machine. The zero value of each is a default.
type Options struct {
	// Name of the machine in what is said about it; the test's name.
	Name string
	// MemMiB is its memory in MiB, 2048; CPUs how many it has, 2.
	MemMiB, CPUs int
	// NUMA is how many NUMA nodes its memory and CPUs are spread over, 1; each gets as
	// much, so they must divide both.
	NUMA int
	// Disks is how many empty disks of 2 GiB it has beside its root, /dev/vdb
	// and on; 0. Monitor knows them as vd1 and on.
	Disks int
	// DiskOptions is what QEMU is told of the disk of that number more, such as
	// throttling.iops-total=100; nothing.
	DiskOptions map[int]string
	// SCSIDisks is how many more it has behind one SCSI controller, /dev/sda and
	// on; 0. Monitor knows them as sd1 and on.
	SCSIDisks int
	// Slots is how many empty slots it has for devices that Monitor adds while
	// it runs, on the buses slot1 and on; 0.
	Slots int
	// Backports: its kernel is the newest of Debian's backports, and not its release's.
	Backports bool
	// Programs: it has PostgreSQL, Redis, SQLite, restic and gcc, of which nothing runs by
	// itself.
	Programs bool
	// Append is added to the kernel's command line, such as psi=0.
	Append string
	// Share is a directory of the host that the machine has at /share, as it was
	// when the machine started, read-only; none. Large files come there much
	// faster than Push brings them.
	Share string
	// Forward lets the machine reach the host, which else it cannot: the key is
	// an address of the machine's network, such as 10.0.2.100:6443, the value
	// one of the host. Any number of connections may be open at once; none.
	Forward map[string]string
}

// VM is a running machine, see Start.
type VM struct {
	options Options
	image   image
	dir     string // its disks, sockets and logs
	host    string // a loopback address of its own, so that no port is taken
	port    int
	qemu    *exec.Cmd
	ended   chan struct{} // closed when QEMU has ended

	mu       sync.Mutex        // guards forwards
	forwards map[string]string // sockets by the address in the machine
}

// bootTime is many times what a boot takes on an idle machine (10 to 15 s).
const bootTime = 5 * time.Minute

// Start boots a machine and waits until it takes commands. It ends with the
// test, or with the test process, however that ends. Where no machine can run,
// the test is skipped with the reason.
func Start(t testing.TB, o Options) *VM {
	t.Helper()
	SkipUnfit(t)
	img, err := cachedImage(t.Context(), scriptOf(o))
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "plimsoll-vm-") //nolint:usetesting // t.TempDir is too long for a socket's name
	require.NoError(t, err)
	o.Name, o.MemMiB, o.CPUs = cmp.Or(o.Name, t.Name()), cmp.Or(o.MemMiB, 2048), cmp.Or(o.CPUs, 2)
	m := &VM{options: o, image: img, dir: dir, ended: make(chan struct{})}
	t.Cleanup(func() { m.end(t) })
	require.NoError(t, m.launch(t.Context()))
	start := time.Now()
	ctx, cancel := deadline.Context(t.Context(), bootTime)
	defer cancel()
	require.NoError(t, m.waitUp(ctx))
	require.NoError(t, m.mountShare(ctx))
	t.Logf("machine %s is up after %s", o.Name, time.Since(start).Round(100*time.Millisecond))
	return m
}

// SkipUnfit skips the test with the reason where no machine can run, for a test
// that has long work to do before Start.
func SkipUnfit(t testing.TB) {
	t.Helper()
	if why := unfit(); why != "" {
		t.Skip("no machine: " + why)
	}
}

// launch starts QEMU.
func (m *VM) launch(ctx context.Context) error {
	m.host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", m.host+":0")
	if err != nil {
		return fmt.Errorf("a port for machine %s: %w", m.options.Name, err)
	}
	m.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return fmt.Errorf("a port for machine %s: %w", m.options.Name, err)
	}
	args, err := m.arguments()
	if err != nil {
		return err
	}
	m.qemu = exec.Command("qemu-system-x86_64", args...) //nolint:noctx // its life is the test's: end kills it
	m.qemu.Dir = m.dir
	// QEMU ends with this process even when that is killed. The kernel means
	// the thread that started it, so that thread is held until QEMU has ended.
	m.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var said bytes.Buffer
	m.qemu.Stdout, m.qemu.Stderr = &said, &said
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(m.ended)
		err := m.qemu.Start()
		started <- err
		if err == nil {
			_ = m.qemu.Wait()
			_ = os.WriteFile(filepath.Join(m.dir, "qemu.log"), said.Bytes(), 0o600)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("machine %s: %w", m.options.Name, err)
	}
	return nil
}

// arguments of QEMU, in whose directory files have short names. The root disk
// is the image with everything that is written kept aside and thrown away.
func (m *VM) arguments() ([]string, error) {
	o := m.options
	args := []string{
		"-name", o.Name, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "q35,usb=off,vmport=off", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", o.cpu(),
		"-smp", strconv.Itoa(o.CPUs), "-m", strconv.Itoa(o.MemMiB),
		"-kernel", m.image.file("vmlinuz"), "-initrd", m.image.file("initrd.gz"),
		"-append", "console=ttyS0 root=/dev/vda rw quiet net.ifnames=0 psi=1 mitigations=off nopti no5lvl random.trust_cpu=on" +
			" no_timer_check" + // a machine that is starved of its processors must not panic for a tick that was late
			" tsc=nowatchdog nowatchdog panic=-1 systemd.unified_cgroup_hierarchy=1 systemd.show_status=0 " + o.Append,
		"-chardev", "file,id=con,path=console.log", "-serial", "chardev:con",
		"-monitor", "unix:monitor,server=on,wait=off", "-device", "virtio-rng-pci",
		"-drive", "if=none,id=root,format=raw,snapshot=on,cache=unsafe,file=" + m.image.file("root.ext4"),
		"-device", "virtio-blk-pci,drive=root,serial=root", // the first: /dev/vda
		"-netdev", m.network(), "-device", "virtio-net-pci,netdev=n0,romfile=",
	}
	args = append(args, o.numa()...)
	disks, err := m.disks()
	if err != nil {
		return nil, fmt.Errorf("disks of machine %s: %w", o.Name, err)
	}
	for i := 1; i <= o.Slots; i++ {
		args = append(args, "-device", fmt.Sprintf("pcie-root-port,id=slot%d,chassis=%d", i, i))
	}
	return append(args, disks...), nil
}

// cpu is the model that is emulated. QEMU 7.2 spoils the flags after cmpxchg16b, by which
// Linux 6.12 panics when it starts; without that instruction it has another way.
func (o Options) cpu() string {
	if o.Backports {
		return "Nehalem,-cx16"
	}
	return "Nehalem"
}

// numa spreads memory and CPUs over the NUMA nodes.
func (o Options) numa() []string {
	var args []string
	for i := 0; o.NUMA > 1 && i < o.NUMA; i++ {
		args = append(args, "-object", fmt.Sprintf("memory-backend-ram,id=numa%d,size=%dM", i, o.MemMiB/o.NUMA),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=numa%d,cpus=%d-%d", i, i, i*o.CPUs/o.NUMA, (i+1)*o.CPUs/o.NUMA-1))
	}
	return args
}

// waitUp waits until the console says that the system is up, and a command runs.
func (m *VM) waitUp(ctx context.Context) error {
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	for !bytes.Contains(m.Console(), []byte("VM-READY")) {
		select {
		case <-every.C:
		case <-m.ended:
			said, _ := os.ReadFile(filepath.Join(m.dir, "qemu.log"))
			return fmt.Errorf("machine %s ended while booting: %s", m.options.Name, said)
		case <-ctx.Done():
			return fmt.Errorf("machine %s is not up after %s: %w", m.options.Name, bootTime, ctx.Err())
		}
	}
	_, err := m.Run(ctx, "true")
	return err
}

// end kills the machine: its disks are thrown away, so nothing is to be saved.
func (m *VM) end(t testing.TB) {
	if t.Failed() {
		console := m.Console()
		t.Logf("last words of machine %s:\n%s", m.options.Name, console[max(0, len(console)-4000):])
	}
	if m.qemu != nil && m.qemu.Process != nil {
		m.hangUp()
		if err := m.qemu.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("end machine %s: %v", m.options.Name, err)
		}
		<-m.ended
	}
	if err := os.RemoveAll(m.dir); err != nil {
		t.Errorf("end machine %s: %v", m.options.Name, err)
	}
}
