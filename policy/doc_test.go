package policy

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/policy.md")

// docs/policy.md is the default policy, written out.
func TestPolicyDocument(t *testing.T) {
	const path = "../docs/policy.md"
	want := policyDocument()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not the policy (go test ./policy -update rewrites it):\n%s", path, diff)
	}
}

func policyDocument() string {
	var b strings.Builder
	b.WriteString(`# What a jail may use

Written from the code. Of several rules the one nearest to an object decides
alone, so a rule that gives nothing hides what a wider one shows. What no rule
covers does not exist for the jail, but for the directories that lead to an
allowed path: those can be seen and not listed.

## Without any flag

| path | may |
|---|---|
`)
	for _, r := range Default("DIR", "~").Rules {
		fmt.Fprintf(&b, "| `%s` | %s |\n", r.Path, r.Rights)
	}
	fmt.Fprintf(&b, `
%s are the jail's own: empty at the start, gone at the end.
`, "`"+strings.Join(Private, "`, `")+"`")
	b.WriteString(`
## Flags

| flag | gives |
|---|---|
| ` + "`--ro PATH`" + ` | read |
| ` + "`--exec PATH`" + ` | read, execute |
| ` + "`--rw PATH`" + ` | read, write, execute |
| ` + "`--deny PATH`" + ` | nothing: hides it, also below an allowed path |
| ` + "`--hardlinks MODE`" + ` | allow, readonly (default) or deny: what may be done to a ` +
		`file in a writable place that has another name, which may be outside |
| ` + "`--outside hide or deny`" + ` | what is outside is missing (ENOENT) or refused (EACCES) |

Paths that lead through a symbolic link of the user's are refused: an earlier jail
could have made it. Name what it points to.

## Environment

The command gets ` + "`HOME`, `USER`, `LOGNAME`, `SHELL`, `PATH`, `TMPDIR`, `TMPPREFIX`, " +
		"`XDG_RUNTIME_DIR`" + ` and ` + "`AGENT_LOCK=1`" + `, and of
the caller's variables those that begin with ` + "`LC_`" + ` and these:

`)
	fmt.Fprintf(&b, "`%s`\n", strings.Join(PassedEnv, "`, `"))
	b.WriteString(`
` + "`--env NAME`" + ` passes another one on, ` + "`--env NAME=VALUE`" + ` sets it. sudo itself
drops most variables; ` + "`sudo --preserve-env=NAME`" + ` keeps one for us to pass on.

## Denials

One line for each distinct denial, on standard error: live, or at the end when that
is a terminal (` + "`--denials live, end or off`" + `). ` + "`--log FILE`" + ` appends each as a
JSON object: ` + "`time`, `hook`, `tried`, `path`, `errno`, `pid`, `comm`, `rule`" + ` and
` + "`remedy`" + `, the flag that would allow it.
`)
	return b.String()
}
