package vmtest

import (
	"bytes"
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

// write takes output as it comes. What is quiet is only kept.
func (t *text) write(data []byte, quiet bool) {
	if t.prefix == "" && !quiet {
		t.emit(data)
	}
	t.part = append(t.part, data...)
	for {
		line, rest, ok := bytes.Cut(t.part, []byte("\n"))
		if !ok && len(line) < textChunk {
			return
		}
		t.line(line, quiet)
		t.part = bytes.Clone(rest)
	}
}

// flush ends a last line that has no line feed.
func (t *text) flush() {
	if len(t.part) > 0 {
		t.line(t.part, false)
		t.part = nil
	}
}

func (t *text) line(line []byte, quiet bool) {
	if t.prefix != "" && !quiet {
		t.emit(append(append([]byte(t.prefix), line...), '\n'))
	}
	if len(t.last) == outputLines {
		t.last = t.last[1:]
	}
	t.last = append(t.last, strings.TrimRight(string(line), "\r"))
}

// emit writes to the run's writer, which all cells share. The reader of that
// output is not our business: if it is gone, the run goes on.
func (t *text) emit(data []byte) {
	t.r.text.Lock()
	defer t.r.text.Unlock()
	t.r.cfg.Text.Write(data)
}
