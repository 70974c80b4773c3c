package throttle

import (
	"fmt"
	"time"
)

// hang is a call of Files that was not answered in time.
type hang struct {
	answered chan answer
	err      error
}

// answer of a call of Files.
type answer struct {
	value uint64
	err   error
}

// leastWait is the part of its Timeout that a Set waits for each worker, also where others
// hang.
const leastWait = 20

// call runs a call of Files in a worker, one for each disk and for each other knob, no longer
// than a Set may wait. The first write of a limit on a disk may wait until that disk has
// answered all its requests (blk_mq_freeze_queue of Linux). What is not answered in time goes
// on, and nothing else is asked of its worker meanwhile: the journal keeps the limit that it
// had saved before the write, and reads later which value came of it.
func (b *Journal) call(k Knob, do func() (uint64, error)) (uint64, error) {
	if b.Timeout == 0 {
		return do()
	}
	worker := k
	if k.disk() {
		worker = Knob{Device: k.Device}
	}
	if of, hangs := b.hanging[worker]; hangs && len(of.answered) == 0 {
		return 0, of.err
	}
	delete(b.hanging, worker)
	answered := make(chan answer, 1)
	go func() {
		value, err := do()
		answered <- answer{value, err}
	}()
	began := time.Now()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-time.After(max(time.Until(b.until), b.Timeout/leastWait)):
	}
	if b.hanging == nil {
		b.hanging = map[Knob]hang{}
	}
	of := hang{answered, fmt.Errorf("the kernel has not answered since %s UTC, as where a disk hangs: see dmesg; tried again once it answers", began.UTC().Format(time.TimeOnly))}
	b.hanging[worker] = of
	return 0, of.err
}

func (b *Journal) get(k Knob) (uint64, error) {
	return b.call(k, func() (uint64, error) { return b.Files.Get(k) })
}
