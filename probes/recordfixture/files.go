package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// globs are the files and links of the host that probes read, below the root.
func globs() []string {
	return []string{
		"proc/stat", "proc/meminfo", "proc/vmstat", "proc/diskstats", "proc/pressure/*",
		"proc/1/net/dev", "proc/1/net/snmp", "proc/1/net/netstat", "proc/1/ns/net", "proc/net/softnet_stat",
		"proc/sys/kernel/random/boot_id",
		"sys/block/*/diskseq", "sys/block/*/size", "sys/block/*/queue/rotational",
		"sys/block/*/wwid", "sys/block/*/removable", "sys/block/*/hidden", "sys/block/*/device/wwid", "sys/block/*/slaves/*",
		"sys/block/*/dm/uuid", "sys/block/*/md/level", "sys/block/*/loop/backing_file",
		"sys/class/net/*/ifindex", "sys/class/net/*/address", "sys/class/net/*/speed", "sys/class/net/*/device",
		"sys/class/net/*/carrier", "sys/class/net/*/type", "sys/class/net/*/uevent", "sys/class/net/*/tun_flags",
		"sys/class/net/*/iflink", "sys/class/net/*/phys_port_name", "sys/class/net/*/bonding/mode", "sys/class/net/*/bridge/stp_state",
		"sys/class/net/*/master", "sys/class/net/*/lower_*",
	}
}

// numaGlobs are the files of NUMA nodes, which probes read only where there are several.
func (r recorder) numaGlobs() []string {
	if !r.has("sys/devices/system/node/node1/meminfo") {
		return nil
	}
	return []string{"proc/zoneinfo", "sys/devices/system/node/has_memory", "sys/devices/system/node/node*/meminfo"}
}

// sample reads all existing files: content by path below the root. For
// unreadable files failed has the reason.
func (r recorder) sample() (files, failed map[string]string, err error) {
	paths, err := r.paths()
	if err != nil {
		return nil, nil, err
	}
	files, failed = map[string]string{}, map[string]string{}
	for _, path := range paths {
		name, data, err := r.read(path)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ESRCH):
			continue // it was removed meanwhile
		case err != nil:
			failed[path] = err.Error()
			continue
		}
		files[name] = data
	}
	return files, failed, nil
}

// paths are the existing files below the root, sorted.
func (r recorder) paths() ([]string, error) {
	paths, err := r.cgroupFiles()
	if err != nil {
		return nil, err
	}
	for _, g := range append(globs(), r.numaGlobs()...) {
		found, err := filepath.Glob(filepath.Join(r.root, g))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			rel, err := filepath.Rel(r.root, f)
			if err != nil {
				return nil, err
			}
			paths = append(paths, rel)
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// read returns a file's name in the archive and its anonymized content. A NIC's
// device link is recorded as a file, since only its existence counts.
func (r recorder) read(path string) (name, data string, err error) {
	full := filepath.Join(r.root, path)
	target, err := os.Readlink(full)
	switch {
	case err == nil && filepath.Base(path) == "device":
		return path, target + "\n", nil
	case err == nil:
		return path + "@", target + "\n", nil
	}
	b, err := os.ReadFile(full)
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return "", "", pe.Err // without the path, which the caller has
	}
	if err != nil {
		return "", "", err
	}
	data, err = r.neutral(full, string(b))
	return path, data, err
}

// neutral returns a file's content without identifiers of the machine.
func (r recorder) neutral(full, data string) (string, error) {
	switch filepath.Base(full) {
	case "boot_id":
		return "b0071d00-0000-4000-8000-000000000000\n", nil
	case "address":
		if strings.Trim(data, "0:\n") != "" {
			return r.address(filepath.Dir(full))
		}
	case "wwid":
		return r.medium(data)
	}
	return data, nil
}

// address is a locally administered one, derived from the device's index.
func (r recorder) address(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "ifindex"))
	index := 0
	if err == nil {
		_, err = fmt.Sscan(string(b), &index)
	}
	return fmt.Sprintf("02:00:00:00:%02x:%02x\n", index>>8&0xff, index&0xff), err
}

// medium hashes a medium's name, salted with the boot id, which is not
// recorded: it is stable within one recording only.
func (r recorder) medium(wwid string) (string, error) {
	salt, err := os.ReadFile(filepath.Join(r.root, "proc/sys/kernel/random/boot_id"))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return "", err
	}
	kind, _, _ := strings.Cut(wwid, ".")
	sum := sha256.Sum256(append(salt, wwid...))
	return fmt.Sprintf("%s.%x\n", kind, sum[:8]), nil
}
