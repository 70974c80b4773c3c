package plugins

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

// Knee is what a disk was seen to carry: the throughput from which more requests at once
// take longer instead of getting more done. It is learned from the disk's own counters,
// and holds for the requests that were made: a disk may carry more than it was asked for.
type Knee struct {
	Read  Carry `json:"read,omitzero"`
	Write Carry `json:"write,omitzero"`
	// Falls is how often it fell to less than half.
	Falls int `json:"falls,omitempty"`
	// Since is when learning began, or when it fell to less than half.
	Since time.Time `json:"since,omitzero"`
	// Before is what it carried before it fell; zero if it did not fall within
	// beforeMaxAge.
	Before Before `json:"before,omitzero"`
}

// Carry is the most of one direction that a disk carried throughout sustainedWindows.
type Carry struct {
	IOPS           float64 `json:"requestsPerSecond,omitzero"`
	BytesPerSecond float64 `json:"bytesPerSecond,omitzero"`
	// AwaitSeconds is the least await at that throughput.
	AwaitSeconds float64 `json:"awaitSeconds,omitzero"`
	// FullIOPS: that many requests of this direction alone kept the disk at its knee, so it
	// carries no more of them. Else it carries at least that. FullBytes: the same of bytes.
	FullIOPS  bool `json:"requestsFull,omitempty"`
	FullBytes bool `json:"bytesFull,omitempty"`
}

// Before is what a disk carried until a time.
type Before struct {
	Read  Carry     `json:"read,omitzero"`
	Write Carry     `json:"write,omitzero"`
	Until time.Time `json:"until"`
}

const (
	// kneeWindow is the time of one observation, and kneeWindows how many are kept.
	kneeWindowTime = 10 * time.Second
	kneeWindows    = 9
	// sustainedWindows is how long a throughput must last to count: caches take a burst.
	sustainedWindows = 3
	// fallWindows of kneeWindows in which a busy disk is slow and carries less than half:
	// then that is what it carries. So a volume whose burst credit has ended is known a
	// minute and a half later, and a pause of a minute changes nothing.
	fallWindows = 6
	fallen      = 0.5
	// A disk is slow from slowFactor times its baseline on, and from slowLeast: faster
	// requests hold up no workload.
	slowFactor = 3
	slowLeast  = 5 * time.Millisecond
	// busyDisk is the busy ratio from which it is asked for all that it can do, as far as
	// one request at a time asks for it.
	busyDisk = 0.9
	// queued is the number of requests in flight from which more than half of an await is
	// waiting for other requests; below it is the disk's own time.
	queued = 2
	// nearKnee is the share of what it carries at which a disk counts as at its knee, and of
	// what a disk does from which a direction counts as all of it.
	nearKnee = 0.8
	// beforeMaxAge is how long a fall is remembered.
	beforeMaxAge = 24 * time.Hour
)

// diskWatch learns the knee of one disk that is there.
type diskWatch struct {
	Knee
	sum     diskUse      // of the window that has not ended
	windows []kneeWindow // the newest last
}

// diskUse is what a disk did in a time; read and write as numbers, bytes and seconds that
// all requests took together.
type diskUse struct {
	seconds, busySeconds, weightedSeconds float64
	read, write                           requestUse
}

type requestUse struct{ requests, bytes, seconds float64 }

func (u *requestUse) add(seconds, perSecond, bytesPerSecond float64, await snapshot.Opt[float64]) {
	a, _ := await.Get() // absent: no request
	u.requests += perSecond * seconds
	u.bytes += bytesPerSecond * seconds
	u.seconds += perSecond * seconds * a
}

func (u *diskUse) add(r snapshot.DiskRates) {
	s := r.WindowSeconds
	u.seconds += s
	u.busySeconds += r.BusyRatio * s
	u.weightedSeconds += r.QueueLength * s
	u.read.add(s, r.ReadsPerSecond, r.ReadBytesPerSecond, r.ReadAwaitSeconds)
	u.write.add(s, r.WritesPerSecond, r.WrittenBytesPerSecond, r.WriteAwaitSeconds)
}

// kneeWindow is one observation.
type kneeWindow struct {
	read, write    Carry
	busy, inFlight float64
	// slow is the await as a multiple of its baseline, of the direction for which it is
	// larger; 0: no baseline, or too few requests. slowAwait is that await.
	slow, slowAwait float64
}

// observe is a window of use, beside the disk's baseline.
func (u *diskUse) observe(b *Baseline) kneeWindow {
	w := kneeWindow{busy: u.busySeconds / u.seconds, inFlight: u.weightedSeconds / u.seconds}
	for _, d := range []struct {
		write bool
		of    requestUse
		to    *Carry
	}{{false, u.read, &w.read}, {true, u.write, &w.write}} {
		*d.to = Carry{IOPS: d.of.requests / u.seconds, BytesPerSecond: d.of.bytes / u.seconds}
		if d.of.requests < diskRequests {
			continue
		}
		d.to.AwaitSeconds = d.of.seconds / d.of.requests
		usual, learned := b.await(d.write, d.of.bytes/d.of.requests).Get()
		if learned && usual > 0 && d.to.AwaitSeconds/usual > w.slow {
			w.slow, w.slowAwait = d.to.AwaitSeconds/usual, d.to.AwaitSeconds
		}
	}
	return w
}

// isSlow: its requests take far longer than is usual.
func (w *kneeWindow) isSlow() bool { return w.slow >= slowFactor && w.slowAwait >= slowLeast.Seconds() }

// part is how much of what the disk carries a window's throughput is, by requests or by
// bytes, whichever is more: at its limit a disk shows half or more of it, whether each of
// the two has a limit of its own or each request and each byte takes its time. False: what
// a direction carries is not known.
func (k *Knee) part(w *kneeWindow) (part float64, known bool) {
	for _, d := range []struct{ used, can Carry }{{w.read, k.Read}, {w.write, k.Write}} {
		if d.used.IOPS == 0 {
			continue
		}
		if d.can.IOPS == 0 || d.can.BytesPerSecond == 0 {
			return 0, false
		}
		part += max(d.used.IOPS/d.can.IOPS, d.used.BytesPerSecond/d.can.BytesPerSecond)
	}
	return part, true
}

// isFallen: it is slow and carries less than half of what it did.
func (k *Knee) isFallen(w *kneeWindow) bool {
	part, known := k.part(w)
	return known && part < fallen && w.isSlow()
}

// newest windows, the newest last; fewer if fewer were seen.
func (d *diskWatch) newest(n int) []kneeWindow {
	return d.windows[max(0, len(d.windows)-n):]
}

// last window; false: none has ended.
func (d *diskWatch) last() (w kneeWindow, some bool) {
	if len(d.windows) == 0 {
		return w, false
	}
	return d.windows[len(d.windows)-1], true
}

// add one tick of the disk; true: a window has ended.
func (d *diskWatch) add(r snapshot.DiskRates, b *Baseline, now time.Time) bool {
	if d.Since.IsZero() {
		d.Since = now
	}
	if d.sum.add(r); d.sum.seconds < kneeWindowTime.Seconds()-tickJitter {
		return false
	}
	d.windows = append(d.newest(kneeWindows-1), d.sum.observe(b))
	d.sum = diskUse{}
	d.rise()
	d.fall(now)
	d.fill()
	if old := now.Sub(d.Before.Until); !d.Before.Until.IsZero() && (old > beforeMaxAge || old < 0 || d.recovered()) {
		d.Before = Before{}
	}
	return true
}

// tickJitter in seconds is how much shorter than asked for a window may be.
const tickJitter = 0.05

// rise takes over a throughput that lasted. A disk that exceeds what was all has become faster:
// then of nothing is it known whether that is all.
func (d *diskWatch) rise() {
	last := d.newest(sustainedWindows)
	if len(last) < sustainedWindows {
		return
	}
	read := d.Read.rise(last, func(w kneeWindow) Carry { return w.read })
	write := d.Write.rise(last, func(w kneeWindow) Carry { return w.write })
	if read || write {
		d.Read.FullIOPS, d.Read.FullBytes, d.Write.FullIOPS, d.Write.FullBytes = false, false, false, false
	}
}

func (c *Carry) rise(last []kneeWindow, of func(kneeWindow) Carry) (faster bool) {
	least := of(last[0])
	for _, w := range last[1:] {
		least.IOPS, least.BytesPerSecond = min(least.IOPS, of(w).IOPS), min(least.BytesPerSecond, of(w).BytesPerSecond)
	}
	await := of(last[len(last)-1]).AwaitSeconds
	moreIOPS, moreBytes := least.IOPS > c.IOPS/nearKnee, least.BytesPerSecond > c.BytesPerSecond/nearKnee
	c.IOPS, c.BytesPerSecond = max(c.IOPS, least.IOPS), max(c.BytesPerSecond, least.BytesPerSecond)
	near := least.IOPS >= c.IOPS*nearKnee || least.BytesPerSecond >= c.BytesPerSecond*nearKnee
	if await > 0 && (moreIOPS || moreBytes || near && await < c.AwaitSeconds) {
		c.AwaitSeconds = await
	}
	return c.FullIOPS && moreIOPS || c.FullBytes && moreBytes
}

// fill takes over that a disk at its knee carries no more of what it does.
func (d *diskWatch) fill() {
	if !d.atKnee() {
		return
	}
	w, _ := d.last()
	d.Read.fill(w.read, w.write)
	d.Write.fill(w.write, w.read)
}

// fill by what a disk at its knee does of this direction, beside the other one. In a mix of both
// each would get more without the other. Far less than the most that was seen is not all either:
// small requests take all of a disk's time with few bytes. Far more may be a burst.
func (c *Carry) fill(does, other Carry) {
	if does.IOPS < (does.IOPS+other.IOPS)*nearKnee || does.BytesPerSecond < (does.BytesPerSecond+other.BytesPerSecond)*nearKnee {
		return
	}
	c.FullIOPS = c.FullIOPS || alike(does.IOPS, c.IOPS)
	c.FullBytes = c.FullBytes || alike(does.BytesPerSecond, c.BytesPerSecond)
}

func alike(a, b float64) bool { return min(a, b) >= max(a, b)*nearKnee }

// fall takes over that a busy disk carries less than half of what it did.
func (d *diskWatch) fall(now time.Time) {
	var parts []float64
	for i := range d.windows {
		if w := &d.windows[i]; d.isFallen(w) && w.busy >= busyDisk {
			part, _ := d.part(w)
			parts = append(parts, part)
		}
	}
	newest, _ := d.last()
	if len(parts) < fallWindows || !d.isFallen(&newest) {
		return
	}
	slices.Sort(parts)
	if d.Before.Until.IsZero() {
		d.Before = Before{Read: d.Read, Write: d.Write, Until: now}
	}
	d.Falls++
	part := parts[len(parts)/2]
	d.Read, d.Write, d.Since = d.Read.times(part), d.Write.times(part), now
	d.Read.AwaitSeconds, d.Write.AwaitSeconds = newest.read.AwaitSeconds, newest.write.AwaitSeconds
}

// times so much: an estimate, which is full only where that is seen again.
func (c Carry) times(part float64) Carry {
	return Carry{IOPS: c.IOPS * part, BytesPerSecond: c.BytesPerSecond * part, AwaitSeconds: c.AwaitSeconds}
}

// recovered: it carries what it did before it fell.
func (k *Knee) recovered() bool {
	of := func(now, before Carry) bool {
		return before.IOPS > 0 && now.IOPS >= before.IOPS*nearKnee || before.BytesPerSecond > 0 && now.BytesPerSecond >= before.BytesPerSecond*nearKnee
	}
	return of(k.Read, k.Before.Read) || of(k.Write, k.Before.Write)
}

// slowByItself is why a disk is slow although little is asked of it; empty: it is not, or
// its requests wait for each other.
func (d *diskWatch) slowByItself() string {
	last := d.newest(sustainedWindows)
	falls := len(last) == sustainedWindows
	for i := range last {
		falls = falls && d.isFallen(&last[i])
	}
	newest, _ := d.last()
	if !falls && (d.Before.Until.IsZero() || !newest.isSlow() || newest.inFlight >= queued) {
		return ""
	}
	did := d.Before
	if did.Until.IsZero() {
		did = Before{Read: d.Read, Write: d.Write}
	}
	return fmt.Sprintf("the disk is slow by itself: its requests take %.0f times as long as usual, %.1f ms, at %.0f requests/s; it carried %s",
		newest.slow, 1000*newest.slowAwait, newest.read.IOPS+newest.write.IOPS, did.text())
}

func (b Before) text() string {
	text := fmt.Sprintf("%.0f requests/s", max(b.Read.IOPS, b.Write.IOPS))
	if !b.Until.IsZero() {
		text += " until " + b.Until.UTC().Format("15:04:05") + " UTC"
	}
	return text
}

// atKnee: it is busy with all that it carries, and requests wait.
func (d *diskWatch) atKnee() bool {
	w, some := d.last()
	part, known := d.part(&w)
	return some && known && part >= nearKnee && w.busy >= busyDisk && w.isSlow()
}

// DiskCapacity is what a disk carries, for those that limit its use.
type DiskCapacity struct {
	Device string `json:"device"`
	Knee
	// ReadBytesPerSecond and WrittenBytesPerSecond are the most that it carries, and no less
	// than it does now; 0: not known, or so many bytes never kept it at its knee (FullBytes).
	ReadBytesPerSecond    float64 `json:"readBytesPerSecond,omitzero"`
	WrittenBytesPerSecond float64 `json:"writtenBytesPerSecond,omitzero"`
	// AtKnee: it is busy with all that it carries.
	AtKnee bool `json:"atKnee,omitempty"`
	// Slow is why it is slow by itself; empty: it is not.
	Slow string `json:"slow,omitempty"`
}

// capacity of a disk, as of its newest window.
func (d *diskWatch) capacity(device string) DiskCapacity {
	w, _ := d.last()
	return DiskCapacity{
		Device: device, Knee: d.Knee, AtKnee: d.atKnee(), Slow: d.slowByItself(),
		ReadBytesPerSecond: d.Read.most(w.read), WrittenBytesPerSecond: d.Write.most(w.write),
	}
}

// most bytes per second that it carries, and no less than now; 0: not known.
func (c Carry) most(now Carry) float64 {
	if !c.FullBytes {
		return 0
	}
	return max(c.BytesPerSecond, now.BytesPerSecond)
}

// Capacity is what a disk carries; nil: not known.
func (l *Levels) Capacity(device string) *DiskCapacity { return capacityOf(l.Disks, device) }

func capacityOf(list []DiskCapacity, device string) *DiskCapacity {
	for i := range list {
		if list[i].Device == device {
			return &list[i]
		}
	}
	return nil
}

// diskWatches has those of the disks that are there, by DiskKey.
type diskWatches map[string]*diskWatch

// learn adds the newest tick of each disk, and returns what each carries, as far as that is
// learned.
func (x diskWatches) learn(s *snapshot.Snapshot, b Baselines) (list []DiskCapacity) {
	step, seen := s.Step(), map[string]bool{}
	for i := range s.Disks {
		d := &s.Disks[i].Disk
		r, ok := step.Disk(d).Get()
		if !ok || !JudgesDisk(d) {
			continue // another disk, or a gap: it is watched anew
		}
		key := DiskKey(d, s.BootID())
		base, watch := b[key], x[key]
		if watch == nil {
			watch = &diskWatch{Knee: base.Knee}
			x[key] = watch
		}
		seen[key] = true
		if watch.add(r, &base, s.Time) {
			base.Knee, base.Device, base.Seen = watch.Knee, d.Name, s.Time
			b[key] = base
		}
		c := watch.capacity(d.Name)
		if DefaultDiskContention().ThresholdOf(d, base).Rotates {
			c.Slow = "" // where a disk seeks, its throughput tells where the requests are
		}
		if c.Read.IOPS > 0 || c.Write.IOPS > 0 {
			list = append(list, c)
		}
	}
	maps.DeleteFunc(x, func(key string, _ *diskWatch) bool { return !seen[key] })
	return list
}
