// Package agentlock_test holds the rules of the whole repository: which package
// may import which, how long things may be, what must be documented, which
// modules may be used. A rule is a function from sources to problems, so that
// every rule is also shown to find the problem it is for.
package agentlock_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/agent-lock/agent-lock"

// A source is one Go file.
type source struct {
	path string // slash-separated, from the root of the repository
	text string
	fset *token.FileSet
	tree *ast.File
}

// parseSource parses one file. Build tags are ignored: the rules hold for
// every file, whatever it is built for.
func parseSource(name, text string) (source, error) {
	fset := token.NewFileSet()
	mode := parser.ParseComments | parser.SkipObjectResolution
	tree, err := parser.ParseFile(fset, name, text, mode)
	return source{name, text, fset, tree}, err
}

func (s source) folder() string  { return path.Dir(s.path) }
func (s source) isTest() bool    { return strings.HasSuffix(s.path, "_test.go") }
func (s source) generated() bool { return ast.IsGenerated(s.tree) }

func (s source) line(pos token.Pos) int { return s.fset.Position(pos).Line }

// problem formats a finding with its place.
func (s source) problem(line int, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", s.path, line, fmt.Sprintf(format, args...))
}

// fileNames lists the files of the repository that the rules are about.
// It goes through package os so that the test cache knows what was read.
func fileNames(root string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.IsDir() && (rel != "." && strings.HasPrefix(d.Name(), ".") ||
			d.Name() == "testdata" || rel == "out") {
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	return names, err
}

// sources reads and parses all Go files of the repository, once.
var sources = sync.OnceValues(func() ([]source, error) {
	names, err := fileNames(".")
	if err != nil {
		return nil, err
	}
	var all []source
	for _, name := range names {
		if path.Ext(name) != ".go" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		s, err := parseSource(name, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
})

// mustSources is sources for tests. Fewer than a handful of files means that
// the walk is broken, not that the repository is small.
func mustSources(t *testing.T) []source {
	t.Helper()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("sources() = %d files, want the repository's", len(all))
	}
	return all
}

// A sourceRule returns what is wrong with a set of Go files.
type sourceRule func([]source) []string

// TestSources applies each rule to the repository.
func TestSources(t *testing.T) {
	rules := map[string]sourceRule{
		"arrows":           wrongArrows,
		"file_length":      longFiles,
		"function_length":  longFunctions,
		"line_length":      longLines,
		"package_comments": wrongPackageComments,
		"exported_docs":    undocumented,
		"names":            emptyNames,
		"skips":            bareSkips,
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for _, p := range rule(mustSources(t)) {
				t.Error(p)
			}
		})
	}
}

// A ruleCase gives a rule files (name to text) and wants its problems.
type ruleCase struct {
	name  string
	rule  sourceRule
	files map[string]string
	want  []string
}

// checkRules runs cases that show what a rule finds and what it lets pass.
func checkRules(t *testing.T, cases []ruleCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var files []source
			for name, text := range tc.files {
				s, err := parseSource(name, text)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, s)
			}
			if diff := cmp.Diff(tc.want, tc.rule(files)); diff != "" {
				t.Errorf("rule(files) differs (-want +got):\n%s", diff)
			}
		})
	}
}
