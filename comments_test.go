package agentlock_test

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wrongPackageComments wants exactly one package comment a package. A folder
// of tests only carries it in one of its tests.
func wrongPackageComments(files []source) []string {
	folders := map[string][]source{}
	for _, s := range files {
		folders[s.folder()] = append(folders[s.folder()], s)
	}
	var problems []string
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		members := folders[folder]
		if slices.ContainsFunc(members, func(s source) bool { return !s.isTest() }) {
			members = slices.DeleteFunc(members, source.isTest)
		}
		var with []string
		for _, s := range members {
			if s.tree.Doc != nil && strings.TrimSpace(s.tree.Doc.Text()) != "" {
				with = append(with, path.Base(s.path))
			}
		}
		slices.Sort(with)
		switch len(with) {
		case 0:
			problems = append(problems, folder+": no package comment")
		case 1:
		default:
			problems = append(problems, folder+": more than one package comment: "+
				strings.Join(with, ", "))
		}
	}
	return problems
}

// undocumented finds exported names without a comment. A group of constants or
// variables may share one. Methods count when their type is exported.
func undocumented(files []source) []string {
	var problems []string
	for _, s := range files {
		if s.isTest() || s.generated() {
			continue
		}
		for _, decl := range s.tree.Decls {
			for _, name := range bareNames(decl) {
				problems = append(problems, s.problem(s.line(name.Pos()),
					"exported %s has no comment", name.Name))
			}
		}
	}
	return problems
}

func bareNames(decl ast.Decl) []*ast.Ident {
	var bare []*ast.Ident
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Doc == nil && (decl.Recv == nil || exportedReceiver(decl.Recv.List[0].Type)) {
			bare = append(bare, decl.Name)
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Doc == nil && (decl.Doc == nil || decl.Lparen.IsValid()) {
					bare = append(bare, spec.Name)
				}
			case *ast.ValueSpec:
				if decl.Doc == nil && spec.Doc == nil && spec.Comment == nil {
					bare = append(bare, spec.Names...)
				}
			}
		}
	}
	return slices.DeleteFunc(bare, func(id *ast.Ident) bool { return !id.IsExported() })
}

func exportedReceiver(typ ast.Expr) bool {
	switch typ := typ.(type) {
	case *ast.StarExpr:
		return exportedReceiver(typ.X)
	case *ast.IndexExpr:
		return exportedReceiver(typ.X)
	case *ast.IndexListExpr:
		return exportedReceiver(typ.X)
	case *ast.Ident:
		return typ.IsExported()
	}
	return false
}

// saysNothing are names that say how code is used, not what it is about.
var saysNothing = []string{"base", "common", "helper", "helpers", "lib", "manager", "misc",
	"shared", "types", "util", "utils"}

// emptyNames finds packages and files with such a name.
func emptyNames(files []source) []string {
	var problems []string
	for _, s := range files {
		name := strings.TrimSuffix(s.tree.Name.Name, "_test")
		if slices.Contains(saysNothing, name) {
			problems = append(problems, s.problem(s.line(s.tree.Name.Pos()),
				"package name %s says nothing; name the subject", name))
		}
		stem, _, _ := strings.Cut(strings.TrimSuffix(path.Base(s.path), ".go"), "_")
		if slices.Contains(saysNothing, stem) {
			problems = append(problems, s.problem(1,
				"file name %s says nothing; name the subject", stem))
		}
	}
	return problems
}

// bareSkips finds tests that are skipped without saying what is missing.
func bareSkips(files []source) []string {
	var problems []string
	for _, s := range files {
		if !s.isTest() {
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && bareSkip(sel.Sel.Name, call.Args) {
				problems = append(problems, s.problem(s.line(call.Pos()),
					"%s without a reason; name what is missing", sel.Sel.Name))
			}
			return true
		})
	}
	return problems
}

func bareSkip(name string, args []ast.Expr) bool {
	switch name {
	case "SkipNow":
		return true
	case "Skip", "Skipf":
		if len(args) == 0 {
			return true
		}
		lit, ok := args[0].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return false
		}
		text, err := strconv.Unquote(lit.Value)
		return err == nil && strings.TrimSpace(text) == ""
	}
	return false
}

func TestPackageComments(t *testing.T) {
	checkRules(t, []ruleCase{
		{"no_package_comment", wrongPackageComments,
			map[string]string{"x/x.go": "package x\n", "x/x_test.go": "// In a test.\npackage x\n"},
			[]string{"x: no package comment"}},
		{"two_package_comments", wrongPackageComments,
			map[string]string{"x/a.go": "// A.\npackage x\n", "x/b.go": "// B.\npackage x\n"},
			[]string{"x: more than one package comment: a.go, b.go"}},
		{"build_tag_is_no_comment", wrongPackageComments,
			map[string]string{"x/x.go": "//go:build linux\n\npackage x\n"},
			[]string{"x: no package comment"}},
		{"one_package_comment", wrongPackageComments, map[string]string{
			"x/a.go": "// A.\npackage x\n", "x/b.go": "package x\n",
			"y_test.go": "// Y.\npackage y\n"}, nil},
	})
}

func TestUndocumented(t *testing.T) {
	checkRules(t, []ruleCase{
		{"undocumented", undocumented, map[string]string{"x/x.go": `package x

type T struct{}

func (T) M() {}

func F() {}

const C = 1

var A, b = 1, 2
`},
			[]string{"x/x.go:3: exported T has no comment", "x/x.go:5: exported M has no comment",
				"x/x.go:7: exported F has no comment", "x/x.go:9: exported C has no comment",
				"x/x.go:11: exported A has no comment"}},
		{"documented", undocumented, map[string]string{"x/x.go": `package x

// T is.
type T struct{}

type hidden[K any] struct{}

func (*hidden[K]) String() string { return "" }

// The constants.
const (
	A = iota
	B
)

var V = 1 // V is.
`, "x/x_test.go": "package x\n\nfunc TestX() {}\n"}, nil},
	})
}

func TestNames(t *testing.T) {
	checkRules(t, []ruleCase{
		{"bad_names", emptyNames,
			map[string]string{"x/utils_linux.go": "package common\n"},
			[]string{"x/utils_linux.go:1: package name common says nothing; name the subject",
				"x/utils_linux.go:1: file name utils says nothing; name the subject"}},
		{"good_names", emptyNames, map[string]string{"mount/table.go": "package mount\n"}, nil},
	})
}

func TestBareSkips(t *testing.T) {
	checkRules(t, []ruleCase{
		{"bare_skips", bareSkips, map[string]string{"x/x_test.go": `package x

func TestX(t *testing.T) {
	t.SkipNow()
	t.Skip()
	t.Skip(" ")
	t.Skipf("")
	t.Skip("no KVM on this machine")
	t.Skipf("kernel %s lacks %s", a, b)
	t.Skip(err)
}
`},
			[]string{"x/x_test.go:4: SkipNow without a reason; name what is missing",
				"x/x_test.go:5: Skip without a reason; name what is missing",
				"x/x_test.go:6: Skip without a reason; name what is missing",
				"x/x_test.go:7: Skipf without a reason; name what is missing"}},
	})
}
