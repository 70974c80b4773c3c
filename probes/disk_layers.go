package probes

import (
	"path"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// diskKind returns what drives a disk. The uuid of a device-mapper target names
// its creator (dm/uuid: LVM-…, CRYPT-…, mpath-…); all others are recognized by
// their name.
func (l *deviceDir) diskKind(name string) string {
	if !strings.HasPrefix(name, "dm-") {
		return kindByName(name)
	}
	uuid, _ := l.text("dm/uuid") // empty if it was created without one
	for _, of := range [][2]string{{"LVM-", "lvm"}, {"CRYPT-", "crypt"}, {"mpath-", "multipath"}} {
		if strings.HasPrefix(uuid, of[0]) {
			return of[1]
		}
	}
	return "dm"
}

func kindByName(name string) string {
	for _, of := range [][2]string{
		{"nvme", "nvme"},
		{"loop", "loop"},
		{"zram", "zram"},
		{"ram", "ram"},
		{"sr", "rom"},
		{"dm-", "dm"},
		{"md", "md"},
		{"drbd", "drbd"},
		{"zd", "zvol"},
	} {
		rest, ok := strings.CutPrefix(name, of[0])
		if ok && rest != "" && (rest[0] == '_' || rest[0] >= '0' && rest[0] <= '9') { // md_d0, md127
			return of[1]
		}
	}
	return "disk"
}

// slaves returns the whole disks below; for a partition, its disk. sysfs lists
// none for a loop device, which may be attached to a block device.
func (l *deviceDir) slaves(disks map[string]*device[diskFacts]) []string {
	var names []string
	for _, name := range l.entries("slaves") {
		names = append(names, wholeDisk(strings.ReplaceAll(name, "!", "/"), l.link("slaves/"+name), disks))
	}
	if file, err := l.text("loop/backing_file"); err == nil && strings.HasPrefix(file, "/dev/") {
		if name := path.Base(file); disks[name] != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// wholeDisk returns a partition's disk, which is its parent directory.
func wholeDisk(name, link string, disks map[string]*device[diskFacts]) string {
	if disks[name] != nil {
		return name
	}
	if around := strings.ReplaceAll(path.Base(path.Dir(link)), "!", "/"); disks[around] != nil {
		return around
	}
	return name
}

// wwid identifies the medium. NVMe has it beside the device, SCSI below it;
// devices that are made of other devices have none.
func (l *deviceDir) wwid(kind string) snapshot.Opt[string] {
	switch {
	case l.has("wwid"):
		return fact(l, "wwid", "wwid", nonEmpty)
	case kind == "disk", kind == "nvme":
		return fact(l, "wwid", "device/wwid", nonEmpty)
	}
	return snapshot.Opt[string]{}
}

// sameGraph reports whether the layers that were derived from was are still
// valid.
func (f *diskFacts) sameGraph(was *diskFacts) bool {
	return f.Kind == was.Kind && slices.Equal(f.Slaves, was.Slaves)
}

// layerDisks sets each disk's layer, so that no two leaves count the same IO:
//   - The head of a multipath is a leaf and the disks below it are its paths.
//     Native multipath of NVMe needs no rule: its paths have no line in
//     diskstats.
//   - A device on other devices is stacked: LVM, md, crypt, a loop device on a
//     file, which lies on some disk.
//   - All others are leaves, also RAM disks.
func layerDisks(disks map[string]*device[diskFacts]) {
	paths := map[string]bool{}
	heads := map[string]bool{}
	for name, d := range disks {
		if d.facts.Kind == "multipath" && len(d.facts.Slaves) > 0 && !slices.ContainsFunc(d.facts.Slaves, func(slave string) bool { return stacked(slave, disks) }) {
			heads[name] = true
			for _, slave := range d.facts.Slaves {
				paths[slave] = true
			}
		}
	}
	for name, d := range disks {
		switch {
		case heads[name]:
			d.facts.Layer = snapshot.LayerLeaf
		case paths[name]:
			d.facts.Layer = snapshot.LayerPath
		case stacked(name, disks):
			d.facts.Layer = snapshot.LayerStacked
		default:
			d.facts.Layer = snapshot.LayerLeaf
		}
	}
}

// stacked reports whether a disk lies on other disks, heads of multipaths
// aside. Before its first look its name decides.
func stacked(name string, disks map[string]*device[diskFacts]) bool {
	kind := kindByName(name)
	if d := disks[name]; d != nil && d.hasFacts {
		if len(d.facts.Slaves) > 0 {
			return true
		}
		kind = d.facts.Kind
	}
	return slices.Contains([]string{"lvm", "crypt", "dm", "multipath", "md", "loop", "drbd", "zvol"}, kind)
}
