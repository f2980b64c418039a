package agentlock_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// goMod is the part of `go mod edit -json` that the rules read.
type goMod struct {
	Require []struct {
		Path     string
		Indirect bool
	}
	Replace []struct{ Old struct{ Path string } }
	Tool    []struct{ Path string }
}

// readGoMod reads a go.mod file.
func readGoMod(t *testing.T, name string) goMod {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", name).Output()
	if err != nil {
		t.Fatalf("go mod edit -json %s: %v", name, err)
	}
	var mod goMod
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	return mod
}

// moduleOf returns the required module that provides a package; the package
// itself if none does.
func (m goMod) moduleOf(importPath string) string {
	best := ""
	for _, r := range m.Require {
		in := importPath == r.Path || strings.HasPrefix(importPath, r.Path+"/")
		if in && len(r.Path) > len(best) {
			best = r.Path
		}
	}
	if best == "" {
		return importPath
	}
	return best
}

// foreign lists the imports that come neither from us nor from the standard
// library, each with a file that has it.
func foreign(files []source) map[string]string {
	from := map[string]string{}
	for _, s := range files {
		for _, spec := range s.tree.Imports {
			importPath, err := strconv.Unquote(spec.Path.Value)
			first, _, _ := strings.Cut(importPath, "/")
			if _, own := ours(importPath); err == nil && !own && strings.Contains(first, ".") {
				from[importPath] = s.path
			}
		}
	}
	return from
}

// tableRow is a line of CONTRIBUTING.md's dependency table: | `module` | reason |
var tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)\\|$")

// dependencyTable reads the section "Dependencies": module to reason.
func dependencyTable(contributing string) map[string]string {
	_, section, _ := strings.Cut(contributing, "\n## Dependencies\n")
	section, _, _ = strings.Cut(section, "\n## ")
	table := map[string]string{}
	for _, m := range tableRow.FindAllStringSubmatch(section, -1) {
		table[m[1]] = strings.TrimSpace(m[2])
	}
	return table
}

// wrongModules compares what is required, imported and run as a tool with the
// table. Rows that nothing uses are reported only when the tree is complete.
func wrongModules(mod goMod, imports, table map[string]string, complete bool) []string {
	var problems []string
	for _, r := range mod.Replace {
		problems = append(problems, "go.mod: replace of "+r.Old.Path+
			"; whoever imports us would not get it, release the fix instead")
	}
	required := map[string]bool{}
	used := map[string]string{} // module: by what
	for _, r := range mod.Require {
		required[r.Path] = true
		if !r.Indirect {
			used[r.Path] = "go.mod"
		}
	}
	for importPath, file := range imports {
		used[mod.moduleOf(importPath)] = file
	}
	for _, tool := range mod.Tool {
		used[mod.moduleOf(tool.Path)] = "the tool block of go.mod"
	}
	for _, path := range slices.Sorted(maps.Keys(used)) {
		if _, ok := table[path]; !ok {
			problems = append(problems, fmt.Sprintf("module %q, used by %s, has no row in "+
				"CONTRIBUTING.md, section Dependencies", path, used[path]))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(table)) {
		if table[path] == "" {
			problems = append(problems, "CONTRIBUTING.md: no reason given for "+path)
		}
		if !required[path] {
			problems = append(problems,
				"CONTRIBUTING.md: "+path+" is not in go.mod; remove its row")
		} else if used[path] == "" && complete {
			problems = append(problems, "CONTRIBUTING.md: nothing uses "+path+"; remove its row")
		}
	}
	return problems
}

// TestModules holds go.mod to the list of modules that were agreed on.
func TestModules(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	table := dependencyTable(string(text))
	if len(table) == 0 {
		t.Fatal("dependencyTable(CONTRIBUTING.md) is empty, want rows | `module` | reason |")
	}
	files := mustSources(t)
	for _, p := range wrongModules(readGoMod(t, "go.mod"), foreign(files), table, complete(files)) {
		t.Error(p)
	}
}

// complete reports whether every folder of the layout has Go files.
func complete(files []source) bool {
	missing := maps.Clone(arrows)
	for _, s := range files {
		delete(missing, top(s.folder()))
	}
	return len(missing) == 0
}

func TestWrongModules(t *testing.T) {
	name := filepath.Join(t.TempDir(), "go.mod")
	text := `module example.com/m
require (
	example.com/direct v1.0.0
	example.com/direct/v2 v2.0.0 // indirect
	example.com/tools v1.0.0 // indirect
	example.com/unused v1.0.0 // indirect
)
replace example.com/direct => ../direct
tool example.com/tools/cmd/gen
`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	imports := map[string]string{"example.com/direct/v2/sub": "x/x.go"}
	table := map[string]string{
		"example.com/direct": "",
		"example.com/gone":   "was once used",
		"example.com/unused": "might be used",
	}
	want := []string{
		"go.mod: replace of example.com/direct; whoever imports us would not get it, " +
			"release the fix instead",
		`module "example.com/direct/v2", used by x/x.go, has no row in CONTRIBUTING.md, ` +
			"section Dependencies",
		`module "example.com/tools", used by the tool block of go.mod, has no row in ` +
			"CONTRIBUTING.md, section Dependencies",
		"CONTRIBUTING.md: no reason given for example.com/direct",
		"CONTRIBUTING.md: example.com/gone is not in go.mod; remove its row",
		"CONTRIBUTING.md: nothing uses example.com/unused; remove its row",
	}
	got := wrongModules(readGoMod(t, name), imports, table, true)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrongModules(...) differs (-want +got):\n%s", diff)
	}
}

func TestDependencyTable(t *testing.T) {
	text := "# C\n\n| `a.example/x` | elsewhere |\n\n## Dependencies\n\n| module | reason |\n" +
		"|---|---|\n| `b.example/y` | reads |\n| `b.example/z` |  |\n\n## After\n\n| `c` | no |\n"
	want := map[string]string{"b.example/y": "reads", "b.example/z": ""}
	if diff := cmp.Diff(want, dependencyTable(text)); diff != "" {
		t.Errorf("dependencyTable(text) differs (-want +got):\n%s", diff)
	}
}

func TestForeign(t *testing.T) {
	s, err := parseSource("x/x.go", `package x
import ("os"; "a.example/b/c"; "`+module+`/report")
`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a.example/b/c": "x/x.go"}
	if diff := cmp.Diff(want, foreign([]source{s})); diff != "" {
		t.Errorf("foreign(files) differs (-want +got):\n%s", diff)
	}
}
