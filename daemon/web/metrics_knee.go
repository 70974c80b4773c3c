package web

import (
	"github.com/plimsoll-dev/plimsoll/plugins"
	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// kneeOf is one direction of a disk.
type kneeOf struct {
	device, direction string
	plugins.Carry
}

// appendKnees appends what each disk was seen to carry, and which is slow by itself.
func appendKnees(b []byte, list []plugins.DiskCapacity) []byte {
	var knees []kneeOf
	for i := range list {
		for _, k := range []kneeOf{{list[i].Device, "read", list[i].Read}, {list[i].Device, "write", list[i].Write}} {
			if k.IOPS > 0 {
				knees = append(knees, k)
			}
		}
	}
	label := func(b []byte, k *kneeOf) []byte {
		b = append(appendPair(append(b, '{'), "device", k.device), ',')
		b = append(appendPair(b, "layer", string(snapshot.LayerLeaf)), ',') // no other is learned
		return append(appendPair(b, "direction", k.direction), '}')
	}
	b = appendFamilies(b, knees, label, []family[kneeOf]{
		{
			"plimsoll_disk_knee_requests_per_second", gauge, "Most requests that the disk was seen to carry for half a minute; it may carry more than it was asked for.",
			func(b []byte, k *kneeOf) []byte { return appendFloat(b, k.IOPS) },
		},
		{
			"plimsoll_disk_knee_bytes_per_second", gauge, "Most bytes that the disk was seen to carry for half a minute.",
			func(b []byte, k *kneeOf) []byte { return appendFloat(b, k.BytesPerSecond) },
		},
		{
			"plimsoll_disk_knee_await_seconds", gauge, "Least mean time of a request at that throughput, queue included.",
			func(b []byte, k *kneeOf) []byte { return appendIf(b, k.AwaitSeconds > 0, k.AwaitSeconds) },
		},
	})
	device := func(b []byte, c *plugins.DiskCapacity) []byte { return appendDevice(b, c.Device, snapshot.LayerLeaf) }
	return appendFamilies(b, list, device, []family[plugins.DiskCapacity]{{
		"plimsoll_disk_slow", gauge, "1 while the disk is slow by itself: its requests take far longer than usual, and no use explains that. Absent until it is learned what the disk carries.",
		func(b []byte, c *plugins.DiskCapacity) []byte { return appendBool(b, c.Slow != "") },
	}})
}
