package backup

import (
	"iter"
	mathbits "math/bits"
)

// bitset is a set of small numbers, a bitmap of fixed size.
type bitset []uint64

func newBitset(size int) bitset { return make(bitset, (size+63)/64) }

func (b bitset) add(i int)    { b[i/64] |= 1 << (i % 64) }
func (b bitset) remove(i int) { b[i/64] &^= 1 << (i % 64) }

// overlaps tells whether two sets of the same size have a common number.
func (b bitset) overlaps(o bitset) bool {
	for i := range min(len(b), len(o)) {
		if b[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// both yields the intersection of two sets of the same size, in order.
func (b bitset) both(o bitset) iter.Seq[int] {
	return func(yield func(int) bool) {
		for w := range o {
			for word := b[w] & o[w]; word != 0; word &= word - 1 {
				if !yield(w*64 + mathbits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}

// shared is the size of the intersection.
func (b bitset) shared(o bitset) (n int) {
	for w := range o {
		n += mathbits.OnesCount64(b[w] & o[w])
	}
	return n
}
