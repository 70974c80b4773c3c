package probes

import (
	"path"
	"slices"
	"strings"
)

// diskKind is what drives a disk. A device-mapper target says in its uuid who
// made it (dm/uuid: LVM-…, CRYPT-…, mpath-…); all else has a name of its own.
func (l *look) diskKind(name string) string {
	if !strings.HasPrefix(name, "dm-") {
		return kindByName(name)
	}
	uuid, _ := l.text("dm/uuid") // none: made without one
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

// slaves are the whole disks below: of a partition, the disk that it is of. A
// loop device has none in sysfs, but may be set up for a block device.
func (l *look) slaves(disks map[string]*device[diskFacts]) []string {
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

// wholeDisk finds the disk of a partition: the directory around it.
func wholeDisk(name, link string, disks map[string]*device[diskFacts]) string {
	if disks[name] != nil {
		return name
	}
	if around := strings.ReplaceAll(path.Base(path.Dir(link)), "!", "/"); disks[around] != nil {
		return around
	}
	return name
}

// wwid is the name of the medium, which NVMe has beside the device and SCSI
// below it. Devices that other devices are made of have none.
func (l *look) wwid(kind string) Opt[string] {
	switch {
	case l.has("wwid"):
		return fact(l, "wwid", "wwid", nonEmpty)
	case kind == "disk", kind == "nvme":
		return fact(l, "wwid", "device/wwid", nonEmpty)
	}
	return Opt[string]{}
}

// sameGraph says whether layers that were told by was still hold.
func (f *diskFacts) sameGraph(was *diskFacts) bool {
	return f.Kind == was.Kind && slices.Equal(f.Slaves, was.Slaves)
}

// layerDisks tells each disk's layer, so that no IO is counted by two leaves:
//   - the head of a multipath is a leaf and the disks below it are its paths.
//     Native multipath of NVMe needs no rule: its paths have no line in
//     diskstats.
//   - what stands on other devices is stacked: LVM, md, crypt, a loop device
//     on a file, which some disk holds.
//   - all else is a leaf: also RAM disks, which stand on no disk.
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
			d.facts.Layer = LayerLeaf
		case paths[name]:
			d.facts.Layer = LayerPath
		case stacked(name, disks):
			d.facts.Layer = LayerStacked
		default:
			d.facts.Layer = LayerLeaf
		}
	}
}

// stacked says whether a disk stands on others, heads of multipaths aside. One
// that was not looked at yet is told by its name.
func stacked(name string, disks map[string]*device[diskFacts]) bool {
	kind := kindByName(name)
	if d := disks[name]; d != nil && d.looked {
		if len(d.facts.Slaves) > 0 {
			return true
		}
		kind = d.facts.Kind
	}
	return slices.Contains([]string{"lvm", "crypt", "dm", "multipath", "md", "loop", "drbd", "zvol"}, kind)
}
