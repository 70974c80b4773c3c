package plugins

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/snapshot"
)

const (
	database = "/kubepods/burstable/pod11111111-1111-1111-1111-111111111111"
	backup   = "/kubepods/besteffort/pod22222222-2222-2222-2222-222222222222"
)

// diskSecond is what happens on a disk in a second.
type diskSecond struct {
	requests     uint64  // reads
	size         uint64  // of each, in bytes; 0: 8 KiB
	await        float64 // seconds, of each
	busy         float64
	backup       float64 // its share of them; the rest is the database's
	unattributed float64 // share of them that no workload explains
	waits        float64 // share of the second in which the database waits
}

// calm is an ordinary second: a database that reads, and a quarter is others'.
func calm() diskSecond {
	return diskSecond{requests: 100, await: 0.001, busy: 0.1, backup: 0.2, waits: 0.01}
}

// pressed is a second in which a backup makes the database wait.
func pressedHard() diskSecond {
	return diskSecond{requests: 400, await: 0.08, busy: 1, backup: 0.9, waits: 0.7}
}

// diskNode is a made-up node with a disk, second by second.
type diskNode struct {
	t       *testing.T
	history *snapshot.History
	set     *Set
	at      time.Duration
	disk    snapshot.Disk
	io      [2]snapshot.WorkloadIO // backup, database
	waits   uint64
	noPSI   bool
	// shell: a session whose IO is not counted is there, and waits.
	shell  bool
	levels *Levels
}

func diskConfig() Config {
	return Config{WarmUp: 5 * time.Minute, DiskContention: DefaultDiskContention()}
}

func newDiskNode(t *testing.T) *diskNode {
	return &diskNode{
		t: t, at: time.Hour, set: NewSet(diskConfig(), nil),
		history: &snapshot.History{Window: 10 * time.Second, Keep: 2 * time.Minute, MaxGap: 3 * time.Second},
		disk: snapshot.Disk{
			Name: "sda", Number: "8:0", Layer: snapshot.LayerLeaf, Kind: "disk",
			Sequence: snapshot.Some(uint64(7)), Rotational: snapshot.Some(false),
		},
		io: [2]snapshot.WorkloadIO{{Number: "8:0"}, {Number: "8:0"}},
	}
}

func (n *diskNode) second(d diskSecond) Verdict {
	n.at += time.Second
	n.disk.Reads += d.requests
	d.size = cmp.Or(d.size, 8192)
	n.disk.ReadBytes += d.requests * d.size
	n.disk.ReadMs += uint64(float64(d.requests) * d.await * 1000)
	n.disk.WeightedMs += uint64(float64(d.requests) * d.await * 1000)
	n.disk.BusyMs += uint64(1000 * d.busy)
	known := uint64(float64(d.requests) * (1 - d.unattributed))
	for i, reads := range []uint64{uint64(float64(known) * d.backup), known - uint64(float64(known)*d.backup)} {
		n.io[i].Reads += reads
		n.io[i].ReadBytes += reads * d.size
	}
	n.waits += uint64(d.waits * 1e6)
	s := &snapshot.Sample{Time: time.Unix(0, 0).UTC().Add(n.at), Monotonic: n.at, Boottime: n.at, BootID: "a", Disks: []snapshot.Disk{n.disk}}
	s.Pressure.IO.Some = snapshot.Some(n.waits)
	for i, cgroup := range []string{backup, database} {
		w := snapshot.Workload{Cgroup: cgroup, Inode: uint64(i + 1), Kind: snapshot.KindPod, Name: []string{"backup", "database"}[i], At: n.at, DetailAt: n.at}
		w.IO = []snapshot.WorkloadIO{n.io[i]}
		if !n.noPSI {
			w.Pressure.IO.Some = snapshot.Some(uint64(i) * n.waits)
		}
		s.Workloads = append(s.Workloads, w)
	}
	if n.shell {
		w := snapshot.Workload{Cgroup: "/user.slice/session-1.scope", Inode: 9, Name: "session-1.scope", At: n.at, DetailAt: n.at}
		w.Absent.Because("io", "the io controller is not enabled for this cgroup")
		w.Pressure.IO.Some = snapshot.Some(n.waits / 2)
		s.Workloads = append(s.Workloads, w)
	}
	n.levels = n.set.Judge(n.history.Add(s))
	require.Len(n.t, n.levels.Verdicts, 1)
	return n.levels.Verdicts[0]
}

func (n *diskNode) seconds(count int, d diskSecond) (v Verdict) {
	for range count {
		v = n.second(d)
	}
	return v
}

// learned is a node that knows its disk.
func (n *diskNode) learned() *diskNode {
	n.seconds(4000, calm())
	return n
}

// never lets time pass and fails if anything is met.
func (n *diskNode) never(count int, d diskSecond) {
	n.t.Helper()
	for i := range count {
		v := n.second(d)
		require.Equal(n.t, None, v.Level, "after %d s: %s", i, v.Reason)
	}
}

func TestDiskContention(t *testing.T) {
	t.Run("culprit", diskContentionCulprit)
	t.Run("ordinary use", diskContentionOrdinaryUse)
	t.Run("burst", diskContentionBurst)
	t.Run("clears", diskContentionClears)
	t.Run("without baseline", diskContentionWithoutBaseline)
	t.Run("unattributed", diskContentionUnattributed)
	t.Run("without PSI", diskContentionWithoutPSI)
	t.Run("missing input", diskContentionMissingInput)
	t.Run("after gap", diskContentionAfterGap)
	t.Run("warm up", diskContentionWarmUp)
	t.Run("changed rule", diskContentionChangedRule)
	t.Run("rotational", diskContentionRotational)
	t.Run("leaves only", diskContentionLeavesOnly)
	t.Run("both culprits", diskContentionBothCulprits)
	t.Run("slow by itself", diskContentionSlowByItself)
	t.Run("burst credit ends", diskContentionBurstCreditEnds)
	t.Run("seeks", diskContentionSeeks)
	t.Run("no answer", diskContentionNoAnswer)
	t.Run("no answer, ceiling", diskContentionNoAnswerCeiling)
	t.Run("writes hang", diskContentionWritesHang)
	t.Run("a doubt beside", diskContentionDoubtBeside)
}

func diskContentionCulprit(t *testing.T) {
	n := newDiskNode(t).learned()
	until := 0
	for n.second(pressedHard()).Level == None {
		until++
		require.Less(t, until, 100, n.levels.Verdicts[0].Reason)
	}
	assert.InDelta(t, 62, until, 4, "a minute, and until the window shows it")
	v := n.levels.Verdicts[0]
	assert.Equal(t, "sda", v.Scope)
	assert.Equal(t, "DiskContention", v.Condition)
	assert.Contains(t, v.Reason, "database waits 6")
	assert.Contains(t, v.Reason, "backup accounts for 90 % of the traffic")
	assert.Contains(t, v.Reason, "await of reads 80.0 ms (needs ≥ 20 ms; baseline 1.0 ms)")
	require.NotEmpty(t, v.Candidates, v.Absent)
	require.Len(t, v.Candidates, 1, "who is hurt is not named")
	assert.Equal(t, "backup", v.Candidates[0].Name)
	assert.InDelta(t, 0.9, v.Candidates[0].Relief, 0.01)
	assert.Equal(t, snapshot.Some(1.0), v.Whole)
}

func diskContentionOrdinaryUse(t *testing.T) {
	for name, d := range map[string]diskSecond{
		"idle":                                       {},
		"a service that reads":                       calm(),
		"a lone backup, as fast as it can":           {requests: 500, await: 0.3, busy: 1, backup: 1},
		"a lone service that waits for itself":       {requests: 500, await: 0.3, busy: 1, waits: 1},
		"somebody waits, the disk is as ever":        {requests: 500, await: 0.002, busy: 0.9, backup: 0.9, waits: 0.5},
		"slow, and nobody waits":                     {requests: 50, await: 0.2, busy: 1, backup: 0.5},
		"so few requests that they have no mean":     {requests: 0, await: 3, busy: 1, backup: 0.5, waits: 1},
		"slow for itself, others hardly use it":      {requests: 500, await: 0.3, busy: 1, backup: 0.02, waits: 1},
		"slower than usual, and still fast for SSDs": {requests: 500, await: 0.015, busy: 1, backup: 0.9, waits: 0.8},
	} {
		t.Run(name, func(t *testing.T) {
			n := newDiskNode(t).learned()
			n.never(300, d)
		})
	}
}

func diskContentionBurst(t *testing.T) {
	n := newDiskNode(t).learned()
	for range 10 {
		n.never(40, pressedHard())
		n.never(20, calm())
	}
}

func diskContentionClears(t *testing.T) {
	n := newDiskNode(t).learned()
	require.Equal(t, Soft, n.seconds(90, pressedHard()).Level)
	for range 5 { // a pause does not flap it
		require.Equal(t, Soft, n.seconds(20, calm()).Level)
		v := n.seconds(20, pressedHard())
		require.Equal(t, Soft, v.Level, v.Reason)
	}
	assert.Equal(t, Soft, n.seconds(29, calm()).Level)
	assert.Contains(t, n.levels.Verdicts[0].Reason, "level stays on until clear")
	assert.Equal(t, None, n.seconds(20, calm()).Level)
}

func diskContentionWithoutBaseline(t *testing.T) {
	n := newDiskNode(t)
	n.seconds(400, calm())
	v := n.seconds(90, pressedHard())
	require.Equal(t, Soft, v.Level, v.Reason)
	assert.Empty(t, v.Candidates)
	assert.Contains(t, v.Absent, "not learned yet: 6m")
}

func diskContentionUnattributed(t *testing.T) {
	n := newDiskNode(t).learned()
	d := pressedHard()
	d.unattributed = 0.4
	v := n.seconds(90, d)
	require.Equal(t, Soft, v.Level, v.Reason)
	assert.Empty(t, v.Candidates)
	assert.Equal(t, "workloads account for 60 % of the traffic; to name a culprit 70 % are needed", v.Absent)
}

func diskContentionWithoutPSI(t *testing.T) {
	n := newDiskNode(t).learned()
	n.noPSI = true
	n.never(120, pressedHard())
	assert.Contains(t, n.levels.Verdicts[0].Absent, "psi=1")
}

// That it is not known who waits does not end a level at once.
func diskContentionMissingInput(t *testing.T) {
	n := newDiskNode(t).learned()
	require.Equal(t, Soft, n.seconds(90, pressedHard()).Level)
	n.noPSI = true
	for range 300 {
		v := n.second(pressedHard())
		require.Equal(t, Soft, v.Level, v.Reason)
		require.Equal(t, None, v.MetLevel)
		require.Contains(t, v.Absent, "psi=1")
		require.Empty(t, v.Candidates)
	}
	v := n.seconds(40, pressedHard())
	assert.Equal(t, None, v.Level, "it does not stay on for ever")
	assert.Contains(t, v.NotJudged(), "psi=1")

	n.noPSI = false
	require.Equal(t, Soft, n.seconds(90, pressedHard()).Level)
	n.noPSI = true
	assert.Equal(t, None, n.seconds(50, calm()).Level, "a disk that is as fast as ever is clear, whoever waits")
}

func diskContentionAfterGap(t *testing.T) {
	n := newDiskNode(t).learned()
	n.never(60, diskSecond{})
	require.Empty(t, n.levels.Verdicts[0].Absent, "a disk without requests is judged")
	seen := func(level Level) {
		n.at += time.Minute // no sample
		v := n.second(calm())
		require.Equal(t, level, v.Level)
		require.Equal(t, "a rate needs two samples", v.Absent)
		require.Contains(t, v.Reason, "incomplete data: a rate needs two samples")
		require.Equal(t, v.Absent, v.Evidence[0].Absent)
		v = n.seconds(4, calm())
		require.Equal(t, level, v.Level)
		require.Equal(t, "4s of the last 10s seen so far", v.Absent)
		require.Empty(t, v.Candidates)
		require.Empty(t, n.seconds(6, calm()).Absent)
	}
	seen(None)
	require.Equal(t, Soft, n.seconds(90, pressedHard()).Level)
	seen(Soft)
	assert.Equal(t, None, n.seconds(35, calm()).Level)
}

func diskContentionWarmUp(t *testing.T) {
	n := newDiskNode(t)
	n.never(290, pressedHard())
	assert.Contains(t, n.levels.Verdicts[0].Reason, "warming up")
	assert.True(t, n.levels.Verdicts[0].Partial)
	assert.Equal(t, Soft, n.seconds(30, pressedHard()).Level)
}

func diskContentionChangedRule(t *testing.T) {
	n := newDiskNode(t).learned()
	require.Equal(t, Soft, n.seconds(90, pressedHard()).Level)
	c := diskConfig()
	c.DiskContention.Factor = 4
	n.set.Configure(c)
	n.never(55, pressedHard())
	assert.Equal(t, Soft, n.seconds(20, pressedHard()).Level)
}

func diskContentionRotational(t *testing.T) {
	n := newDiskNode(t)
	n.disk.Rotational = snapshot.Some(true)
	turns := calm()
	turns.await = 0.009
	n.seconds(4000, turns)
	n.never(200, pressedHard())
	slow := pressedHard()
	slow.await = 0.15
	v := n.seconds(90, slow)
	assert.Equal(t, Soft, v.Level)
	assert.Contains(t, v.Reason, "(needs ≥ 100 ms; baseline 9.0 ms; it rotates (queue/rotational is 1): its reads take 9.0 ms)")
}

// A virtual disk says that it rotates, and its reads take a millisecond.
func TestVirtualDisk(t *testing.T) {
	n := newDiskNode(t)
	n.disk.Rotational = snapshot.Some(true)
	v := n.seconds(30, calm())
	assert.Contains(t, v.Reason, "(needs ≥ 100 ms; it says that it rotates (queue/rotational is 1), and too few reads were measured to doubt it: 2800 in 28 s, needs 1000 in 60 s)")
	v = n.seconds(60, calm())
	assert.Contains(t, v.Reason, "(needs ≥ 20 ms; it says that it rotates (queue/rotational is 1), but its reads take 1.0 ms, which no disk with moving parts does)")
	v = n.seconds(300, pressedHard())
	assert.Equal(t, Soft, v.Level, "%s", v.Reason)
}

func diskContentionLeavesOnly(t *testing.T) {
	for _, d := range []snapshot.Disk{{Layer: snapshot.LayerStacked}, {Layer: snapshot.LayerPath}, {Layer: snapshot.LayerLeaf, Kind: "zram"}} {
		d.Reads = 1
		assert.False(t, judged(&d))
	}
}

// Two that are alike hurt each other, and both are named.
func diskContentionBothCulprits(t *testing.T) {
	n := newDiskNode(t).learned()
	d := pressedHard()
	d.backup = 0.55
	v := n.seconds(90, d)
	require.Equal(t, Soft, v.Level, v.Reason)
	require.Len(t, v.Candidates, 2)
	assert.Equal(t, "backup", v.Candidates[0].Name)
}

// carries400 is a node whose disk has served 400 requests per second.
func carries400(t *testing.T) *diskNode {
	n := newDiskNode(t).learned()
	n.seconds(60, diskSecond{requests: 400, await: 0.002, busy: 0.8, backup: 0.2})
	require.InDelta(t, 400, n.levels.Capacity("sda").Read.IOPS, 1)
	return n
}

// silent is a second in which a disk completes no request; those that it has are in flight.
func silent() diskSecond { return diskSecond{busy: 1, waits: 1} }

func diskContentionNoAnswer(t *testing.T) {
	n := newDiskNode(t).learned()
	n.disk.InFlight = 12
	require.Equal(t, Soft, n.seconds(90, pressedHard()).Level)
	v := n.seconds(60, silent())
	assert.Equal(t, Soft, v.Level, v.Reason)
	assert.Contains(t, v.Absent, "12 requests are in flight")
	assert.Empty(t, v.Candidates)
	n.disk.InFlight = 0
	assert.Contains(t, n.seconds(20, calm()).Reason, "level stays on until clear")
	assert.Equal(t, None, n.seconds(20, calm()).Level, "it answers again")

	n.disk.InFlight = 12
	n.never(60, silent())
	assert.Contains(t, n.levels.Verdicts[0].NotJudged(), "12 requests are in flight, and fewer than 10 reads and writes were completed in 10s")
	for i := range 60 { // a disk with little to do has a request in flight at times
		n.disk.InFlight = uint64(i % 2)
		n.never(1, diskSecond{requests: uint64(i % 2), await: 0.001})
		require.True(t, i < 10 || n.levels.Verdicts[0].NotJudged() == "")
	}
}

// Writes that hang while reads are served fast are no all-clear.
func diskContentionWritesHang(t *testing.T) {
	n := newDiskNode(t).learned()
	require.Equal(t, Soft, n.seconds(90, pressedHard()).Level)
	n.disk.InFlight = 32
	v := n.seconds(60, diskSecond{requests: 50, await: 0.001, busy: 1, backup: 1, waits: 1})
	assert.Equal(t, Soft, v.Level, v.Reason)
	assert.Contains(t, v.Absent, "32 requests or more are in flight throughout, and those that were completed in 10s explain 0.1 of them: the others get no answer")

	n = newDiskNode(t).learned()
	n.disk.InFlight = 20
	n.seconds(60, diskSecond{requests: 1000, await: 0.02, busy: 1, backup: 1})
	assert.Empty(t, n.levels.Verdicts[0].NotJudged(), "a full queue that is served")
}

// A service is seen to wait. That it is not known what another waits for does not hide who
// uses the disk.
func diskContentionDoubtBeside(t *testing.T) {
	n := newDiskNode(t).learned()
	n.shell = true
	v := n.seconds(90, pressedHard())
	require.Equal(t, Soft, v.Level, v.Reason)
	require.Empty(t, v.Absent)
	require.NotEmpty(t, v.Candidates)
	assert.Equal(t, "backup", v.Candidates[0].Name)
}

func diskContentionNoAnswerCeiling(t *testing.T) {
	n := newDiskNode(t)
	c := diskConfig()
	c.DiskContention.Ceilings = []DiskCeiling{{Device: "sda", IOPS: 300}}
	n.set.Configure(c)
	n.disk.InFlight = 12
	require.Equal(t, Soft, n.seconds(400, pressedHard()).Level)
	v := n.seconds(60, silent())
	assert.Equal(t, Soft, v.Level, v.Reason)
	assert.Contains(t, v.Absent, "12 requests are in flight")
}

// Who waits is no culprit, however many others wait for longer.
func TestDiskTopWaitingCulprit(t *testing.T) {
	of := func(name string, share, waited float64) snapshot.Culprit {
		return snapshot.Culprit{Party: snapshot.Party{Cgroup: "/" + name, Name: name}, Share: share, Waited: waited}
	}
	v := View{Snapshot: &snapshot.Snapshot{Contention: []snapshot.Contention{{
		Resource: snapshot.SharedDisk, Device: "sda", State: snapshot.ContentionPresent, MoreSufferers: 1,
		Culprits: []snapshot.Culprit{of("batch", 0.6, 0.1), of("database", 0.25, 0.37), of("web", 0.1, 0.04)},
	}}}}
	var named []string
	for _, c := range DefaultDiskContention().Top(v, Verdict{Scope: "sda"}, 3) {
		named = append(named, c.Name)
	}
	assert.Equal(t, []string{"batch", "web"}, named)
}

// A disk that takes 40 ms for each request although it has next to nothing to do: two
// workloads wait, each has half of the traffic, and neither is the cause.
func diskContentionSlowByItself(t *testing.T) {
	n := carries400(t)
	sick := diskSecond{requests: 40, await: 0.04, busy: 1, backup: 0.5, waits: 0.7}
	v := n.seconds(90, sick)
	require.Equal(t, Soft, v.Level, v.Reason)
	for range 900 {
		v = n.second(sick)
		require.Empty(t, v.Candidates)
		require.Contains(t, v.Absent, "the disk is slow by itself: its requests take 40 times as long as usual, 40.0 ms, at 40 requests/s; it carried 400 requests/s")
		require.Contains(t, v.Reason, "slow by itself")
	}
	v = n.seconds(90, calm())
	assert.Equal(t, None, v.Level)
	assert.NotContains(t, v.Reason, "slow by itself")
}

// A volume that carries a tenth from now on: after two minutes that is what it carries,
// and who takes it all is named as before.
func diskContentionBurstCreditEnds(t *testing.T) {
	n := carries400(t)
	ended := diskSecond{requests: 40, await: 0.6, busy: 1, backup: 0.9, waits: 0.7}
	assert.Contains(t, n.seconds(45, ended).Reason, "slow by itself")
	v := n.seconds(75, ended)
	require.Equal(t, Soft, v.Level, v.Reason)
	assert.InDelta(t, 40, n.levels.Capacity("sda").Read.IOPS, 1)
	assert.InDelta(t, 400, n.levels.Capacity("sda").Before.Read.IOPS, 1)
	require.NotEmpty(t, v.Candidates, v.Absent)
	assert.Equal(t, backup, v.Candidates[0].Cgroup)
}

// A disk with moving parts that reads a file, and then here and there, does a tenth: that is
// the pattern, and who causes it is named.
func diskContentionSeeks(t *testing.T) {
	n := newDiskNode(t)
	n.disk.Rotational = snapshot.Some(true)
	n.seconds(4000, diskSecond{requests: 40, await: 0.008, busy: 0.3, backup: 0.2})
	n.seconds(60, diskSecond{requests: 400, await: 0.01, busy: 1, backup: 0.2})
	var v Verdict
	for range 75 {
		v = n.second(diskSecond{requests: 40, await: 0.4, busy: 1, backup: 0.9, waits: 0.7})
		require.NotContains(t, v.Reason, "slow by itself")
	}
	require.Equal(t, Soft, v.Level, v.Reason)
	require.NotEmpty(t, v.Candidates, v.Absent)
	assert.Equal(t, backup, v.Candidates[0].Cgroup)
}
