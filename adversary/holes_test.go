package adversary

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/holes.md names cases, and guest tests of the jail, that exist.
func TestHolesDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/holes.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| AgentJail") && !strings.HasPrefix(line, "| Y-") {
			continue
		}
		rows++
		names := regexp.MustCompile("`([a-z0-9_]+|Test[A-Za-z]+)`").FindAllStringSubmatch(line, -1)
		if len(names) == 0 {
			t.Errorf("no case in the row %q", line)
		}
		for _, name := range names {
			if _, ok := findCase(name[1]); !ok && !isGuestTest(t, name[1]) {
				t.Errorf("there is no case and no test %s", name[1])
			}
		}
	}
	if rows != 29 {
		t.Errorf("%d rows, want 29: is one lost?", rows)
	}
}

func isGuestTest(t *testing.T, name string) bool {
	t.Helper()
	if !strings.HasPrefix(name, "Test") {
		return false
	}
	files, err := os.ReadDir("../jail")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if text, err := os.ReadFile("../jail/" + f.Name()); err == nil &&
			strings.Contains(string(text), "func "+name+"(") {
			return true
		}
	}
	return false
}
