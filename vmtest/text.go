package vmtest

import (
	"bytes"
	"io"
	"strings"
)

// outputLines is how many lines of its steps' output a cell keeps.
const outputLines = 40

// text passes on what the steps of one cell print.
type text struct {
	r      *runner
	prefix string // empty: pass bytes on as they come, not in lines
	part   []byte // of a line
	last   []string
}

func (r *runner) newText(label string) *text {
	t := &text{r: r}
	if len(r.cfg.Kernels) > 1 {
		t.prefix = label + ": "
	}
	return t
}

// write takes output as it comes. Without a writer it is only kept.
func (t *text) write(data []byte, to io.Writer) {
	if t.prefix == "" {
		t.emit(data, to)
	}
	t.part = append(t.part, data...)
	for {
		line, rest, ok := bytes.Cut(t.part, []byte("\n"))
		if !ok && len(line) < textChunk {
			return
		}
		t.line(line, to)
		t.part = bytes.Clone(rest)
	}
}

// flush ends a last line that has no line feed.
func (t *text) flush() {
	if len(t.part) > 0 {
		t.line(t.part, t.r.cfg.Text)
		t.part = nil
	}
}

func (t *text) line(line []byte, to io.Writer) {
	if t.prefix != "" {
		t.emit(append(append([]byte(t.prefix), line...), '\n'), to)
	}
	if len(t.last) == outputLines {
		t.last = t.last[1:]
	}
	t.last = append(t.last, strings.TrimRight(string(line), "\r"))
}

// emit writes to a writer of the run's, which all cells share. The reader of that
// output is not our business: if it is gone, the run goes on.
func (t *text) emit(data []byte, to io.Writer) {
	if to == nil {
		return
	}
	t.r.text.Lock()
	defer t.r.text.Unlock()
	to.Write(data)
}
