package vm

import (
	"bytes"
	"context"
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
	var args []string
	for i := 1; i <= m.options.Disks; i++ {
		name := fmt.Sprintf("vd%d", i)
		if err := sparse(filepath.Join(m.dir, name), 2<<30); err != nil {
			return nil, err
		}
		args = append(args, disk(name, "")...)
	}
	if m.options.Share == "" {
		return args, nil
	}
	return append(args, disk("share", ",readonly=on")...), m.makeShare()
}

// disk has the same name in QEMU, as a file and as its serial number.
func disk(name, more string) []string {
	return []string{
		"-drive", "if=none,format=raw,cache=unsafe,id=" + name + ",file=" + name + more,
		"-device", "virtio-blk-pci,drive=" + name + ",serial=" + name,
	}
}

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
