package report

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a pseudo-terminal of a width: what programs write to
// the second one arrives at the first.
func openTerminal(t *testing.T, width uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	size := &unix.Winsize{Row: 24, Col: width}
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// onTerminal returns what arrives at a terminal of a width.
func onTerminal(t *testing.T, width uint16, write func(*os.File)) string {
	t.Helper()
	master, slave := openTerminal(t, width)
	const end = "\x04end"
	go func() {
		write(slave)
		slave.WriteString(end)
	}()
	var got bytes.Buffer
	buffer := make([]byte, 4096)
	timeout := time.AfterFunc(time.Minute, func() { master.Close() })
	defer timeout.Stop()
	for !strings.HasSuffix(got.String(), end) {
		n, err := master.Read(buffer)
		got.Write(buffer[:n])
		if err != nil {
			t.Fatalf("read the terminal: %v after %q", err, &got)
		}
	}
	return strings.TrimSuffix(got.String(), end)
}

func TestColoursOnTerminalsOnly(t *testing.T) {
	table := func(f *os.File) {
		if err := WriteTable(f, oneJail()); err != nil {
			t.Error(err)
		}
	}
	tests := []struct {
		name, term, noColor string
		want                bool
	}{
		{"terminal", "xterm", "", true},
		{"dumb", "dumb", "", false},
		{"no_color", "xterm", "1", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TERM", tt.term)
			t.Setenv("NO_COLOR", tt.noColor)
			got := onTerminal(t, 80, table)
			if strings.Contains(got, red+"LEAKED"+plain) != tt.want ||
				strings.Contains(got, "\x1b") != tt.want {
				t.Errorf("WriteTable to a terminal = %q, want colour: %t", got, tt.want)
			}
			// Colour changes nothing else.
			var uncoloured bytes.Buffer
			if err := WriteTable(&uncoloured, oneJail()); err != nil {
				t.Fatal(err)
			}
			for _, c := range []string{red, green, yellow, magenta, faint, plain, "\r"} {
				got = strings.ReplaceAll(got, c, "")
			}
			if got != uncoloured.String() {
				t.Errorf("without its colours the table is %q, want %q", got, &uncoloured)
			}
		})
	}
	file, err := os.Create(t.TempDir() + "/table")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	table(file)
	if data, err := os.ReadFile(file.Name()); err != nil || bytes.Contains(data, []byte("\x1b")) ||
		!bytes.Contains(data, []byte("LEAKED")) {
		t.Errorf("WriteTable to a file = %q, %v, want no colour", data, err)
	}
}

func TestProgress(t *testing.T) {
	t.Setenv("TERM", "xterm")
	const width = 40
	results := append(oneJail(), runOf("rings_"+strings.Repeat("long_", 20)+"=leaked",
		"\x1b[2J\n=denied")...)
	got := onTerminal(t, width, func(f *os.File) {
		p := NewProgress(f, len(results))
		for _, r := range results {
			p.Add(r)
		}
		p.Clear()
	})
	lines := strings.Split(got, eraseLine)
	// One a result, one before the first, and nothing after the last.
	if len(lines) != len(results)+2 || lines[0] != "" || lines[len(lines)-1] != "" {
		t.Fatalf("progress wrote %q, want a line for each result, the last erased", lines)
	}
	for i, want := range map[int]string{
		1: "1/10 rings_open 0 leaked", 2: "2/10 rings_send 1 leaked",
		4:  "4/10 rings_new 1 leaked, 1 broken",
		9:  "9/10 rings_long_lon… 2 leaked, 2 broken",
		10: `10/10 \x1b[2J\n 2 leaked, 2 broken`,
	} {
		if lines[i] != want {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
	for _, line := range lines {
		printable(t, line)
		if n := len([]rune(line)); n >= width {
			t.Errorf("%q has %d columns, want fewer than the terminal's %d", line, n, width)
		}
	}
}

func TestProgressIsForTerminals(t *testing.T) {
	add := func(f *os.File) {
		p := NewProgress(f, 1)
		p.Add(oneJail()[0])
		p.Clear()
	}
	t.Setenv("TERM", "dumb")
	if got := onTerminal(t, 80, add); got != "" {
		t.Errorf("progress on a dumb terminal = %q, want nothing", got)
	}
	file, err := os.Create(t.TempDir() + "/progress")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	add(file)
	if data, err := os.ReadFile(file.Name()); err != nil || len(data) > 0 {
		t.Errorf("progress to a file = %q, %v, want nothing", data, err)
	}
}

// The table stays below what is printed, is rewritten in place and gone at the end.
func TestLive(t *testing.T) {
	got := onTerminal(t, 20, func(w *os.File) {
		l := NewLive(w, false)
		l.Set("6.1", "load")
		l.Printf("hello")
		l.next = time.Time{}
		l.Set("6.12", "a line that is too long\n")
		l.Remove("6.1")
		l.Remove("6.12")
	})
	want := "6.1  load\r\n" +
		"\r\x1b[1A\x1b[Jhello\r\n6.1  load\r\n" +
		"\r\x1b[1A\x1b[J6.1   load\r\n6.12  a line that i\r\n" +
		"\r\x1b[2A\x1b[J6.12  a line that i\r\n" +
		"\r\x1b[1A\x1b[J"
	if got != want {
		t.Errorf("terminal got %q,\nwant %q", got, want)
	}
	var plain bytes.Buffer
	l := NewLive(&plain, false)
	l.Set("6.1", "load")
	l.Printf("hello %d", 1)
	l.Remove("6.1")
	if got := plain.String(); got != "hello 1\n" {
		t.Errorf("no terminal got %q, want the line alone", got)
	}
}
