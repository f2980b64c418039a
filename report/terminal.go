package report

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Terminal reports whether w is a terminal that understands escape sequences.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// colours reports whether what is written to w may have colours; NO_COLOR, with any
// value, forbids it.
func colours(w io.Writer) bool { return Terminal(w) && os.Getenv("NO_COLOR") == "" }

const (
	red     = "\x1b[1;31m"
	green   = "\x1b[32m"
	yellow  = "\x1b[33m"
	magenta = "\x1b[1;35m"
	faint   = "\x1b[2m"
	plain   = "\x1b[0m"

	// eraseLine goes to the start of the line and clears it.
	eraseLine = "\r\x1b[K"
)

// colour is the colour of an outcome.
func (r Result) colour() string {
	switch r.Outcome {
	case OK, Denied:
		return green
	case Leaked, Failed:
		return red
	case Known:
		return yellow
	case Skipped, Unsupported:
		return faint
	case Broken:
	}
	return magenta
}

// A Progress is a line on a terminal that tells how far a run is. It is rewritten in
// place and removed at the end; on what is no terminal it is not there at all.
type Progress struct {
	w                   io.Writer
	total, done         int
	leaked, brokenCount int
	width               func() int
}

// NewProgress returns the line for a run of total results.
func NewProgress(w io.Writer, total int) *Progress {
	if !Terminal(w) {
		return &Progress{}
	}
	fd := int(w.(*os.File).Fd())
	return &Progress{w: w, total: total, width: func() int {
		if width, _, err := term.GetSize(fd); err == nil && width > 0 {
			return width
		}
		return 80
	}}
}

// Add counts a result and shows the line.
func (p *Progress) Add(r Result) {
	if p.w == nil {
		return
	}
	p.done++
	if r.Outcome == Leaked || r.Outcome == Failed {
		p.leaked++
	} else if r.Bad() {
		p.brokenCount++
	}
	tail := fmt.Sprintf(" %d leaked", p.leaked)
	if p.brokenCount > 0 {
		tail += fmt.Sprintf(", %d broken", p.brokenCount)
	}
	head := fmt.Sprintf("%d/%d ", p.done, p.total)
	// The last column stays free: some terminals begin a new line when it is written.
	room := p.width() - 1
	name := clip(visible(r.Name), max(room-len(head)-len(tail), 1))
	line := []rune(head + name + tail)
	fmt.Fprint(p.w, eraseLine, string(line[:min(len(line), max(room, 0))]))
}

// Clear removes the line, for other output or for good. The next Add shows it again.
func (p *Progress) Clear() {
	if p.w != nil && p.done > 0 {
		fmt.Fprint(p.w, eraseLine)
	}
}

// pad fills a text up to a width.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0))
}
