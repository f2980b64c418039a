package agentlock_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// arrows says which folders of ours the packages below a folder may import.
// docs/architecture.md explains the drawing. Tests are held to it as well: the
// adversary must not know the jail it attacks, not even in a test.
var arrows = map[string][]string{
	"cmd": {"adversary", "bpf", "event", "filesystems", "jail", "kernels", "policy", "report",
		"vmtest"},
	"jail":        {"bpf", "event", "policy"},
	"vmtest":      {"kernels", "report"},
	"adversary":   {"report"},
	"filesystems": {"report"},
	"bpf":         {},
	"event":       {},
	"kernels":     {},
	"policy":      {},
	"report":      {},
	".":           {}, // these tests
}

// top is the first folder of a slash-separated path, "." for the root.
func top(folder string) string {
	first, _, _ := strings.Cut(folder, "/")
	return first
}

// ours returns the folder of an import path of this module.
func ours(importPath string) (folder string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func wrongArrows(files []source) []string {
	var problems []string
	for _, s := range files {
		from := top(s.folder())
		allowed, known := arrows[from]
		if !known {
			problems = append(problems, s.problem(1, "folder %s is not in the layout; put the "+
				"file where its subject lives, or extend arrows and docs/architecture.md", from))
			continue
		}
		for _, spec := range s.tree.Imports {
			importPath, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				panic(fmt.Sprintf("parser accepted import %s", spec.Path.Value))
			}
			folder, ok := ours(importPath)
			if !ok || top(folder) == from || slices.Contains(allowed, top(folder)) {
				continue
			}
			problems = append(problems, s.problem(s.line(spec.Pos()),
				"%s must not import %s (allowed: %s)", from, folder, list(allowed)))
		}
	}
	return problems
}

func list(names []string) string {
	if len(names) == 0 {
		return "none of ours"
	}
	return strings.Join(names, ", ")
}

// TestArrowsTable checks the table itself: it has no cycle, so that "may
// import" never becomes "depends on" through another folder.
func TestArrowsTable(t *testing.T) {
	for from := range arrows {
		reached := reach(from, arrows)
		if slices.Contains(reached, from) {
			t.Errorf("reach(%s) = %v, want no way back to it", from, reached)
		}
		if from != "adversary" && from != "vmtest" {
			continue
		}
		for _, to := range []string{"jail", "bpf", "policy", "event"} {
			if slices.Contains(reached, to) {
				t.Errorf("reach(%s) = %v, want it to know no %s", from, reached, to)
			}
		}
	}
}

// reach lists what can be reached from a folder over the arrows.
func reach(from string, arrows map[string][]string) []string {
	var reached []string
	todo := slices.Clone(arrows[from])
	for len(todo) > 0 {
		next := todo[0]
		todo = todo[1:]
		if !slices.Contains(reached, next) {
			reached = append(reached, next)
			todo = append(todo, arrows[next]...)
		}
	}
	return reached
}

func TestReach(t *testing.T) {
	cyclic := map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"a"}}
	if got := reach("a", cyclic); !slices.Contains(got, "a") {
		t.Errorf("reach(a) = %v, want a among them", got)
	}
}

func TestWrongArrows(t *testing.T) {
	file := func(pkg, imports string) string {
		return "package " + pkg + "\nimport _ \"" + imports + "\"\n"
	}
	checkRules(t, []ruleCase{
		{"adversary_imports_jail", wrongArrows,
			map[string]string{"adversary/x.go": file("adversary", module+"/jail")},
			[]string{"adversary/x.go:2: adversary must not import jail (allowed: report)"}},
		{"test_file_too", wrongArrows,
			map[string]string{"vmtest/x_test.go": file("vmtest_test", module+"/bpf")},
			[]string{"vmtest/x_test.go:2: vmtest must not import bpf (allowed: kernels, report)"}},
		{"tagged_file_too", wrongArrows,
			map[string]string{"bpf/x.go": "//go:build vm\n\n" + file("bpf", module+"/event")},
			[]string{"bpf/x.go:4: bpf must not import event (allowed: none of ours)"}},
		{"below_a_folder", wrongArrows,
			map[string]string{"report/table/x.go": file("table", module+"/policy/defaults")},
			[]string{"report/table/x.go:2: report must not import policy/defaults " +
				"(allowed: none of ours)"}},
		{"unknown_folder", wrongArrows,
			map[string]string{"internal/x.go": file("internal", "os")},
			[]string{"internal/x.go:1: folder internal is not in the layout; put the file " +
				"where its subject lives, or extend arrows and docs/architecture.md"}},
		{"allowed", wrongArrows,
			map[string]string{
				"cmd/agent-lock/x.go":  file("main", module+"/jail"),
				"kernels/unpack/x.go":  file("unpack", module+"/kernels"),
				"adversary/x_test.go":  file("adversary_test", module+"/adversary"),
				"jail/x.go":            file("jail", "github.com/cilium/ebpf"),
				"event/similar/pkg.go": file("similar", module+"-other/jail"),
			}, nil},
	})
}
