package probes

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// factsEvery is how many reads the facts of a device are kept. Reading them
// all each time would cost more than all else that is read: the speed of a
// link takes the kernel's rtnl lock and asks the driver.
const factsEvery = 30

// registry knows the devices of one class of sysfs from read to read, by the
// inodes of their links. Such an inode belongs to one object and is not given
// again (kernfs counts 64 bits up, 31 bits before kernel 5.5), so that one
// listing tells exactly what came, went, or was made anew under its old name,
// for the price of one open directory. diskseq and ifindex would tell too, but
// cost a file for each device.
type registry[F any] struct {
	dir     string
	devices map[string]*device[F]
	// forget is told of facts that are no longer needed; may be nil.
	forget func(*F)

	buf   []byte
	round int // listings so far
	reads int // samples so far
	met   int // devices so far
	// moved: the set of devices changed, or a fact that their layers depend on.
	moved bool
}

type device[F any] struct {
	name   string
	inode  uint64
	listed int  // the round that saw it last
	since  int  // the round in which it came
	born   int  // the read in which it came
	place  int  // its number among all that came, which spreads the looks
	looked bool // its facts are its own; else none, or those of one that had its name
	facts  F
}

func newRegistry[F any](dir string) *registry[F] {
	return &registry[F]{dir: dir, devices: map[string]*device[F]{}, buf: make([]byte, 32<<10)}
}

// steady takes counters with read, and afterwards lists the devices. A device
// that the listing before knew too was there all the time between: the counters
// are its own. When one has come meanwhile they are read again, since they may
// be those of one that had its name. unlisted is why sysfs could not be listed.
func (r *registry[F]) steady(read func() error) (err, unlisted error) {
	const tries = 3 // what still comes then is left out of this sample: see settled
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

func (r *registry[F]) settled(d *device[F]) bool { return d.since != r.round }

// list looks at what is there now and says whether a device has come.
func (r *registry[F]) list() (come bool, err error) {
	fd, err := openSysfs(unix.AT_FDCWD, r.dir, unix.O_DIRECTORY)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }()
	r.round++
	there := 0
	err = eachEntry(fd, r.buf, func(name []byte, inode uint64) {
		there++
		come = r.see(name, inode) || come
	})
	if err != nil {
		return false, fmt.Errorf("list %s: %w", r.dir, err)
	}
	if there != len(r.devices) {
		r.sweep()
	}
	r.moved = r.moved || come
	return come, nil
}

// see says whether the device is not the one that it knew by that name.
func (r *registry[F]) see(name []byte, inode uint64) (come bool) {
	// A slash in a device's name is an exclamation mark in sysfs.
	if i := bytes.IndexByte(name, '!'); i >= 0 {
		name = bytes.ReplaceAll(name, []byte{'!'}, []byte{'/'})
	}
	d, known := r.devices[string(name)]
	if known && d.inode == inode {
		d.listed = r.round
		return false
	}
	if !known {
		d = &device[F]{name: string(name)}
		r.devices[d.name] = d
	}
	d.inode, d.listed, d.since, d.born, d.place, d.looked = inode, r.round, r.round, r.reads, r.met, false
	r.met++
	return true
}

func (r *registry[F]) sweep() {
	for name, d := range r.devices {
		if d.listed == r.round {
			continue
		}
		if r.forget != nil {
			r.forget(&d.facts)
		}
		delete(r.devices, name)
		r.moved = true
	}
}

// due says whether the facts of a device are to be read: at once when it came,
// then each in its turn once in so many reads. One that came while we were
// looking is still being set up, and is looked at after 1, 2, 4, 8 and 16.
func (r *registry[F]) due(d *device[F], every int) bool {
	age := r.reads - d.born
	young := d.born > 1 && age > 0 && age < factsEvery && age&(age-1) == 0
	return !d.looked || young || (age > 0 && (r.reads+d.place)%every == 0)
}

func (r *registry[F]) lookAt(d *device[F]) *look {
	return lookAt(filepath.Join(r.dir, strings.ReplaceAll(d.name, "/", "!")), r.buf)
}
