package probes

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// factsEvery is how many reads the facts of a device are cached. Reading them
// each time would cost more than all other probes: the speed of a link takes
// the kernel's rtnl lock and asks the driver.
const factsEvery = 30

// registry caches the devices of one class of sysfs, identified by the inodes
// of their links. An inode belongs to one object and is not reused (kernfs
// counts 64 bits up, 31 bits before kernel 5.5), so one listing shows which
// devices were added, removed or re-created under the same name, at the cost of
// one open directory. diskseq and ifindex would show it too, but cost a file
// per device.
type registry[F any] struct {
	dir     string
	devices map[string]*device[F]
	// forget releases facts that are no longer needed; may be nil.
	forget func(*F)

	buf      []byte
	listings int // listings so far
	reads    int // samples so far
	added    int // devices so far
	// changed: devices were added or removed, or a fact that layers depend on
	// changed.
	changed bool
}

type device[F any] struct {
	name         string
	inode        uint64
	lastListing  int  // the last round that listed it
	addedListing int  // the round that listed it first
	addedRead    int  // the read that listed it first
	ordinal      int  // counts devices in the order they appeared, which spreads the looks
	hasFacts     bool // its facts are its own; false: none, or those of an earlier device of its name
	facts        F
}

func newRegistry[F any](dir string) *registry[F] {
	return &registry[F]{dir: dir, devices: map[string]*device[F]{}, buf: make([]byte, 32<<10)}
}

// readStable reads counters with read and then lists the devices. Counters belong
// to a device that the previous listing had too. If a device appeared
// meanwhile, the counters are read again, since they may be those of an earlier
// device of its name. unlisted is the error of listing sysfs.
func (r *registry[F]) readStable(read func() error) (err, unlisted error) {
	const tries = 3 // a device that appears in the last one is left out: see settled
	r.reads++
	for range tries {
		if err := read(); err != nil {
			return err, nil
		}
		come, err := r.list()
		if err != nil || !come {
			return nil, err
		}
	}
	return nil, nil
}

func (r *registry[F]) stable(d *device[F]) bool { return d.addedListing != r.listings }

// list reads the directory and reports whether a device was added.
func (r *registry[F]) list() (come bool, err error) {
	fd, err := openSysfs(unix.AT_FDCWD, r.dir, unix.O_DIRECTORY)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }()
	r.listings++
	there := 0
	err = eachEntry(fd, r.buf, func(name []byte, inode uint64) {
		there++
		come = r.observe(name, inode) || come
	})
	if err != nil {
		return false, fmt.Errorf("list %s: %w", r.dir, err)
	}
	if there != len(r.devices) {
		r.sweep()
	}
	r.changed = r.changed || come
	return come, nil
}

// observe records an entry and reports whether its device is a new one.
func (r *registry[F]) observe(name []byte, inode uint64) (come bool) {
	// sysfs shows a slash in a device's name as an exclamation mark.
	if i := bytes.IndexByte(name, '!'); i >= 0 {
		name = bytes.ReplaceAll(name, []byte{'!'}, []byte{'/'})
	}
	d, known := r.devices[string(name)]
	if known && d.inode == inode {
		d.lastListing = r.listings
		return false
	}
	if !known {
		d = &device[F]{name: string(name)}
		r.devices[d.name] = d
	}
	d.inode, d.lastListing, d.addedListing, d.addedRead, d.ordinal, d.hasFacts = inode, r.listings, r.listings, r.reads, r.added, false
	r.added++
	return true
}

func (r *registry[F]) sweep() {
	for name, d := range r.devices {
		if d.lastListing == r.listings {
			continue
		}
		if r.forget != nil {
			r.forget(&d.facts)
		}
		delete(r.devices, name)
		r.changed = true
	}
}

// due reports whether to read the facts of a device: at once when it is new,
// then once every so many reads, spread over the devices. A device that
// appeared while the agent runs is still being set up, and is read again after
// 1, 2, 4, 8 and 16 reads.
func (r *registry[F]) due(d *device[F], every int) bool {
	age := r.reads - d.addedRead
	young := d.addedRead > 1 && age > 0 && age < factsEvery && age&(age-1) == 0
	return !d.hasFacts || young || (age > 0 && (r.reads+d.ordinal)%every == 0)
}

func (r *registry[F]) open(d *device[F]) *deviceDir {
	return openDeviceDir(filepath.Join(r.dir, strings.ReplaceAll(d.name, "/", "!")), r.buf)
}
