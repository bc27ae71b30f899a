package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"strconv"
	"sync"
)

// A digester hashes a domain and named fields (docs/bundle-format.md,
// "Digests"). Every value goes in behind its length, so that no two lists of
// fields are the same bytes. Small values are gathered in buf, and strings pass
// through it piece by piece: the hash takes no strings, and a conversion would
// copy the whole of one.
type digester struct {
	h   hash.Hash
	buf []byte // not yet hashed
}

// digesters holds idle digesters; a digest then allocates only its text.
var digesters = sync.Pool{New: func() any {
	return &digester{h: sha256.New(), buf: make([]byte, 0, 4096)}
}}

func newDigester(domain string) *digester {
	d := digesters.Get().(*digester)
	d.value(domain)
	return d
}

// sum returns the digest in lower-case hex. The digester must not be used again.
func (d *digester) sum() string {
	d.flush()
	sum := d.h.Sum(d.buf)
	text := string(hex.AppendEncode(sum, sum)[len(sum):])
	d.h.Reset()
	digesters.Put(d)
	return text
}

func (d *digester) flush() {
	d.h.Write(d.buf)
	d.buf = d.buf[:0]
}

// room makes place for n bytes in the buffer, n being small.
func (d *digester) room(n int) {
	if cap(d.buf)-len(d.buf) < n {
		d.flush()
	}
}

func (d *digester) length(n int) {
	d.room(8)
	d.buf = binary.BigEndian.AppendUint64(d.buf, uint64(n))
}

func (d *digester) value(s string) {
	d.length(len(s))
	for len(s) > 0 {
		d.room(1)
		n := copy(d.buf[len(d.buf):cap(d.buf)], s)
		d.buf = d.buf[:len(d.buf)+n]
		s = s[n:]
	}
}

func (d *digester) string(name, s string) {
	d.value(name)
	d.value(s)
}

func (d *digester) bytes(name string, b []byte) {
	d.value(name)
	d.length(len(b))
	if len(b) > cap(d.buf)-len(d.buf) {
		d.flush()
	}
	if len(b) > cap(d.buf) {
		d.h.Write(b)
		return
	}
	d.buf = append(d.buf, b...)
}

func (d *digester) int(name string, v int64) {
	d.value(name)
	at := d.decimal()
	d.buf = strconv.AppendInt(d.buf, v, 10)
	binary.BigEndian.PutUint64(d.buf[at-8:], uint64(len(d.buf)-at))
}

func (d *digester) uint(name string, v uint64) {
	d.value(name)
	at := d.decimal()
	d.buf = strconv.AppendUint(d.buf, v, 10)
	binary.BigEndian.PutUint64(d.buf[at-8:], uint64(len(d.buf)-at))
}

// decimal makes place for a number and for its length, which is known only once
// the number is written. It returns where the number goes.
func (d *digester) decimal() int {
	d.room(8 + len("-9223372036854775808"))
	d.length(0)
	return len(d.buf)
}

// count opens a group of n elements.
func (d *digester) count(name string, n int) {
	d.int(name, int64(n))
}

func (d *digester) bool(name string, v bool) {
	if v {
		d.string(name, "true")
	} else {
		d.string(name, "false")
	}
}

// doubles hashes the bits as they are: -0.0 is not 0.0, and a NaN keeps its
// payload. A single double is a list of one.
func (d *digester) doubles(name string, v ...float64) {
	d.value(name)
	d.length(8 * len(v))
	for _, x := range v {
		d.room(8)
		d.buf = binary.BigEndian.AppendUint64(d.buf, math.Float64bits(x))
	}
}
