package vmtest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Each file of testdata/console is what is to be found, an empty line, and a
// console: real ones of guests that were provoked, except for handwritten.txt and
// innocent.txt.
func TestConsoleFindings(t *testing.T) {
	files, err := filepath.Glob("testdata/console/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob = %d files, %v, want some", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			at := strings.Index("\n"+string(text), "\n\n")
			want, log := string(text[:at]), string(text[at+1:])
			var c console
			for _, line := range strings.Split(strings.TrimSuffix(log, "\n"), "\n") {
				c.add(line + "\r")
			}
			var got strings.Builder
			for _, f := range c.findings {
				fmt.Fprintf(&got, "%s (%d): %s\n", f.Splat, f.Count, f.Text)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got.String()+"\n"+log), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got.String()); diff != "" {
				t.Errorf("findings of %s (-want +got):\n%s", file, diff)
			}
		})
	}
}

func TestConsoleIsBounded(t *testing.T) {
	var c console
	for i := range 5 * consoleLines {
		c.add(fmt.Sprint("line ", i))
	}
	c.add(strings.Repeat("x", 10*consoleLineMax))
	if len(c.lines) > 2*consoleLines {
		t.Errorf("console keeps %d lines, want at most %d", len(c.lines), 2*consoleLines)
	}
	tail := c.tail(2)
	want := []string{fmt.Sprint("line ", 5*consoleLines-1), strings.Repeat("x", consoleLineMax)}
	if diff := cmp.Diff(want, tail); diff != "" {
		t.Errorf("tail(2) (-want +got):\n%s", diff)
	}
}

func FuzzConsole(f *testing.F) {
	f.Add("[    1.0] Kernel panic - not syncing: x")
	f.Fuzz(func(t *testing.T, line string) {
		var c console
		c.add(line)
		if splat, ok := classify(line); ok && splat == "" {
			t.Errorf("classify(%q) = a splat without a name", line)
		}
	})
}
