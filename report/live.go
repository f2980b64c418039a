package report

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Live is a table on a terminal with a line for each of several things that go on at a
// time. It is rewritten in place, below whatever else is printed through it, and removed at
// the end. On what is no terminal there is no table, and the rest is printed all the same.
type Live struct {
	mu    sync.Mutex
	w     io.Writer
	size  func() (width, height int) // nil: no terminal
	names []string
	lines map[string]string
	drawn int // lines on the terminal
	next  time.Time
}

// liveEvery bounds how often the table is drawn.
const liveEvery = 100 * time.Millisecond

// NewLive returns an empty table on w; with plain it is none.
func NewLive(w io.Writer, plain bool) *Live {
	l := &Live{w: w, lines: map[string]string{}}
	if plain || !Terminal(w) {
		return l
	}
	fd := int(w.(*os.File).Fd())
	l.size = func() (int, int) {
		width, height, err := term.GetSize(fd)
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}
	return l
}

// Set makes text the line of a name. Lines stay in the order in which they came.
func (l *Live) Set(name, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size == nil {
		return
	}
	if !slices.Contains(l.names, name) {
		l.names = append(l.names, name)
	}
	l.lines[name] = text
	if now := time.Now(); now.After(l.next) {
		l.next = now.Add(liveEvery)
		l.erase()
		l.draw()
	}
}

// Remove takes the line of a name away.
func (l *Live) Remove(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = slices.DeleteFunc(l.names, func(n string) bool { return n == name })
	l.erase()
	l.draw()
}

// Printf prints a line above the table.
func (l *Live) Printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
	fmt.Fprintf(l.w, format+"\n", args...)
	l.draw()
}

func (l *Live) erase() {
	if l.drawn > 0 {
		fmt.Fprintf(l.w, "\r\x1b[%dA\x1b[J", l.drawn)
	}
	l.drawn = 0
}

func (l *Live) draw() {
	if l.size == nil || len(l.names) == 0 {
		return
	}
	wide := 0
	for _, name := range l.names {
		wide = max(wide, len([]rune(visible(name))))
	}
	width, height := l.size()
	var b strings.Builder
	// What has scrolled out could not be erased; the last column stays free, as in Progress.
	for _, name := range l.names[:min(len(l.names), max(height-1, 0))] {
		line := []rune(pad(visible(name), wide) + "  " + visible(l.lines[name]))
		b.WriteString(string(line[:min(len(line), max(width-1, 0))]) + "\n")
		l.drawn++
	}
	fmt.Fprint(l.w, b.String())
}
