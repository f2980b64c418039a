package report

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

// oneJail is a run against one jail, with every outcome.
func oneJail() []Result {
	attack := func(family, name string, o Outcome, errno, detail string) Result {
		return Result{Kind: Case, Name: name, Family: family, Jail: "agent-lock", User: "dev",
			Outcome: o, Errno: errno, Detail: detail, Millis: 1.25}
	}
	unknown := attack("rings", "rings_new", "splendid", "", "")
	unknown.Millis = 0
	return []Result{
		attack("rings", "rings_open", Denied, "ENOENT", "openat: no such file or directory"),
		attack("rings", "rings_send", Leaked, "", "the canary was sent out\nand again"),
		attack("rings", "rings_cmd", Unsupported, "", "needs IORING_OP_URING_CMD"),
		unknown,
		attack("keys", "key_users", Known, "", "keys of the user are shared, see <docs>"),
		attack("keys", "key_persistent", Skipped, "", "control: keyctl: ENOSYS | EOPNOTSUPP"),
		attack("keys", "key_ring", Broken, "", "the jail died"),
		attack("keys", "key_search", Denied, "", "no effect outside"),
	}
}

// threeJails is the same cases against several jails.
func threeJails() []Result {
	var all []Result
	add := func(family, name string, outcomes ...Outcome) {
		for i, jail := range []string{"agent-lock", "bwrap", "none"} {
			if outcomes[i] == "" {
				continue
			}
			r := Result{Kind: Case, Name: name, Family: family, Jail: jail, User: "dev",
				Outcome: outcomes[i], Millis: 0.5}
			if outcomes[i] == Leaked {
				r.Detail = "the canary was sent out"
			}
			all = append(all, r)
		}
	}
	add("traversal", "traversal_absolute", Denied, Denied, Leaked)
	add("traversal", "traversal_dots", Denied, Denied, Denied)
	add("traversal", "traversal_write", Denied, Leaked, Leaked)
	add("keys", "key_users", Known, Known, Known)
	add("keys", "key_ring", Denied, Broken, "")
	add("keys", "key_search", Skipped, Skipped, Skipped)
	add("signals", "signal_kill", Denied, Denied, Denied)
	return all
}

var rules = map[string]Rule{
	"rings_send": {What: "sends {the} canary[1] through a ring", Family: "rings",
		Source: "D12 CVE-0000-0000", Hooks: []string{"socket_sendmsg", "uring_cmd"}},
	"rings_new": {What: "does what is new"},
}

// A form is one way to show results.
type form struct {
	name  string
	write func(io.Writer, []Result) error
}

// forms are all of them.
var forms = []form{
	{"table.txt", WriteTable},
	{"matrix.txt", func(w io.Writer, r []Result) error { return WriteMatrix(w, r, false) }},
	{"matrix_all.txt", func(w io.Writer, r []Result) error { return WriteMatrix(w, r, true) }},
	{"matrix.md", func(w io.Writer, r []Result) error { return WriteMarkdownMatrix(w, r, false) }},
	{"matrix_all.md", func(w io.Writer, r []Result) error {
		return WriteMarkdownMatrix(w, r, true)
	}},
	{"summary.md", WriteMarkdown},
	{"page.html", WriteHTML},
	{"junit.xml", WriteJUnit},
	{"annotations.txt", WriteAnnotations},
	{"costs.txt", func(w io.Writer, r []Result) error {
		return WriteCosts(w, programs(r, 100), programs(r, 110))
	}},
	{"log.sarif", func(w io.Writer, r []Result) error { return WriteSARIF(w, "v1", rules, r) }},
}

// programs makes programs of results, on which the verifier spends more and more.
func programs(results []Result, insns uint32) []Result {
	var ps []Result
	for i, r := range results {
		if i == 2 { // where nothing changes
			insns = 100
		}
		ps = append(ps, Result{Kernel: "6.12", Kind: Program, Name: r.Name, Outcome: OK,
			Insns: insns * uint32(i+1)})
	}
	return ps
}

// checkGolden compares a text with a file of testdata.
func checkGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s; go test ./report -update rewrites it (-want +got):\n%s", golden, diff)
	}
}

func TestForms(t *testing.T) {
	for prefix, results := range map[string][]Result{
		"one_": oneJail(), "three_": threeJails(),
	} {
		for _, f := range forms {
			t.Run(prefix+f.name, func(t *testing.T) {
				var got bytes.Buffer
				if err := f.write(&got, results); err != nil {
					t.Fatal(err)
				}
				checkGolden(t, prefix+f.name, got.Bytes())
			})
		}
	}
}

// failing is a full disk.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestFormsReportWriteErrors(t *testing.T) {
	for _, f := range forms {
		if err := f.write(failing{}, oneJail()); err == nil {
			t.Errorf("%s to a full disk = nil, want an error", f.name)
		}
	}
}

// TestFormsOfNothing checks that an empty run is shown as one, and does not panic.
func TestFormsOfNothing(t *testing.T) {
	for _, f := range forms {
		var got bytes.Buffer
		if err := f.write(&got, nil); err != nil || got.Len() == 0 {
			t.Errorf("%s of no results = %q, %v, want some text", f.name, &got, err)
		}
	}
}
