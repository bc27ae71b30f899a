package lines_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/plimsoll-attest/plimsoll/internal/lines"
)

func TestReader(t *testing.T) {
	long := strings.Repeat("x", 200_000) // several times the read buffer
	for name, c := range map[string]struct {
		text string
		want []string
		err  error
	}{
		"empty":            {"", nil, io.EOF},
		"lines":            {"a\nbc\n" + long + "\nd\n", []string{"a", "bc", long, "d"}, io.EOF},
		"blank lines":      {"\n\na\n", []string{"", "", "a"}, io.EOF},
		"CRLF is content":  {"a\r\n", []string{"a\r"}, io.EOF},
		"torn":             {"a\nb", []string{"a"}, lines.ErrTorn},
		"torn, long":       {"a\n" + long, []string{"a"}, lines.ErrTorn},
		"NUL after the LF": {"a\n\x00", []string{"a"}, lines.ErrTorn},
	} {
		t.Run(name, func(t *testing.T) {
			for _, src := range []io.Reader{strings.NewReader(c.text), iotest.OneByteReader(strings.NewReader(c.text)), iotest.DataErrReader(strings.NewReader(c.text))} {
				r := lines.NewReader(src)
				for i, want := range c.want {
					have, err := r.Next()
					if err != nil || string(have) != want {
						t.Fatalf("line %d: have %.20q, %v, want %.20q", i+1, have, err, want)
					}
				}
				for range 2 {
					if _, err := r.Next(); !errors.Is(err, c.err) {
						t.Fatalf("have %v, want %v", err, c.err)
					}
				}
				if c.err == io.EOF && r.End() != int64(len(c.text)) {
					t.Errorf("end: have %d, want %d", r.End(), len(c.text))
				}
			}
		})
	}
}

// TestReadError: a disk that fails is no refusal of what it holds.
func TestReadError(t *testing.T) {
	broken := errors.New("input/output error")
	r := lines.NewReader(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)))
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, broken) || errors.Is(err, lines.ErrTorn) {
		t.Errorf("have %v", err)
	}
}

// TestEndlessLine: a line that never ends is given up at the bound, however
// much more there is.
func TestEndlessLine(t *testing.T) {
	read := &counter{r: io.LimitReader(zeros{}, 600<<20)}
	if _, err := lines.NewReader(read).Next(); !errors.Is(err, lines.ErrTooLong) {
		t.Fatalf("have %v, want ErrTooLong", err)
	}
	if read.n > lines.MaxBytes+(1<<20) {
		t.Errorf("%d bytes were read of a line that may have %d", read.n, lines.MaxBytes)
	}
}

type counter struct {
	r io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte{'0'}, len(p))), nil }
