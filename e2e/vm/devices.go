package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// network is the argument of QEMU for the machine's only network, a made-up one.
// Per forwarded connection QEMU starts a process with its two ends as standard
// input and output: a host address given instead would be connected to once.
func (m *VM) network() string {
	var b strings.Builder
	fmt.Fprintf(&b, "user,id=n0,restrict=on,ipv6=off,hostfwd=tcp:%s:%d-:22", m.host, m.port)
	for _, guest := range slices.Sorted(maps.Keys(m.options.Forward)) {
		host := strings.ReplaceAll(m.options.Forward[guest], ":", " ")
		fmt.Fprintf(&b, ",guestfwd=tcp:%s-cmd:busybox nc %s", guest, host)
	}
	return b.String()
}

// disks are the arguments of QEMU for the disks beside the root, which it makes.
func (m *VM) disks() ([]string, error) {
	args, err := m.empty("vd", m.options.Disks, "virtio-blk-pci")
	if err != nil {
		return nil, err
	}
	if m.options.SCSIDisks > 0 {
		scsi, err := m.empty("sd", m.options.SCSIDisks, "scsi-hd,bus=scsi.0")
		if err != nil {
			return nil, err
		}
		args = append(append(args, "-device", "virtio-scsi-pci,id=scsi"), scsi...)
	}
	if m.options.Share == "" {
		return args, nil
	}
	return append(args, disk("share", ",readonly=on", "virtio-blk-pci")...), m.makeShare()
}

// empty are n disks of 2 GiB, which it makes.
func (m *VM) empty(prefix string, n int, driver string) (args []string, err error) {
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("%s%d", prefix, i)
		if err := sparse(filepath.Join(m.dir, name), 2<<30); err != nil {
			return nil, err
		}
		driver := driver
		if prefix == "sd" {
			driver += fmt.Sprintf(",wwn=0x5000c5000000%04x", i)
		}
		more := ""
		if o := m.options.DiskOptions[i]; o != "" && prefix == "vd" {
			more = "," + o
		}
		args = append(args, disk(name, more, driver)...)
	}
	return args, nil
}

// disk has the same name in QEMU, as a file and as its serial number.
func disk(name, more, driver string) []string {
	return []string{
		"-drive", "if=none,format=raw,cache=unsafe,id=" + name + ",file=" + name + more,
		"-device", driver + ",drive=" + name + ",serial=" + name,
	}
}

// PlugDisk plugs an empty disk of 2 GiB into an empty slot while the machine
// runs; its serial number is name, and Unplug knows it by that.
func (m *VM) PlugDisk(ctx context.Context, name string, slot int) error {
	if err := sparse(filepath.Join(m.dir, name), 2<<30); err != nil {
		return fmt.Errorf("machine %s: plug disk %s: %w", m.options.Name, name, err)
	}
	if err := m.quiet(ctx, "drive_add 0 if=none,format=raw,cache=unsafe,id="+name+",file="+name); err != nil {
		return err
	}
	return m.quiet(ctx, fmt.Sprintf("device_add virtio-blk-pci,id=%s,drive=%s,serial=%s,bus=slot%d", name, name, name, slot))
}

// PlugNIC plugs a network device into an empty slot while the machine runs; it
// leads to a network in which nobody is. Unplug knows it by name.
func (m *VM) PlugNIC(ctx context.Context, name, address string, slot int) error {
	if err := m.quiet(ctx, "netdev_add hubport,hubid=0,id="+name); err != nil {
		return err
	}
	return m.quiet(ctx, fmt.Sprintf("device_add virtio-net-pci,id=%s,netdev=%s,mac=%s,romfile=,bus=slot%d", name, name, address, slot))
}

// Unplug asks the machine to let a device go that was plugged in. It is gone
// when the machine has let go, which takes it some seconds.
func (m *VM) Unplug(ctx context.Context, name string) error { return m.quiet(ctx, "device_del "+name) }

// quiet is Monitor of a command that says nothing unless it failed.
func (m *VM) quiet(ctx context.Context, command string) error {
	said, err := m.Monitor(ctx, command)
	if err == nil && strings.Trim(said, " \n") != "" && strings.TrimSpace(said) != "OK" {
		err = fmt.Errorf("machine %s: monitor %q: %w: %s", m.options.Name, command, errRefused, strings.TrimSpace(said))
	}
	return err
}

var errRefused = errors.New("refused")

// makeShare makes a file system of the shared directory.
func (m *VM) makeShare() error {
	var bytesUsed int64
	err := filepath.WalkDir(m.options.Share, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytesUsed += info.Size() + 4096 // and its inode
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("share: %w", err)
	}
	path := filepath.Join(m.dir, "share")
	if err := sparse(path, bytesUsed*5/4+16<<20); err != nil {
		return fmt.Errorf("share: %w", err)
	}
	cmd := exec.Command("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-d", m.options.Share, path) //nolint:noctx // local, and over in a second
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("share %s: mkfs.ext4: %w: %s", m.options.Share, err, bytes.TrimSpace(said))
	}
	return nil
}

func (m *VM) mountShare(ctx context.Context) error {
	if m.options.Share == "" {
		return nil
	}
	_, err := m.Run(ctx, "mkdir /share && mount -o ro /dev/disk/by-id/virtio-share /share")
	return err
}

// sparse makes a file of that many bytes that takes no room yet.
func sparse(path string, size int64) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, size)
}
