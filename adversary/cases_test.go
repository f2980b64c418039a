package adversary

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/adversary.md from the case table")

func TestMain(m *testing.M) {
	// The runner copies this program and runs the copy as the attacker.
	if len(os.Args) > 1 && os.Args[1] == attackerVerb {
		lifecycle = append(lifecycle, badCases...)
		os.Exit(AttackerMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func TestCasesAreComplete(t *testing.T) {
	name := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)+$`)
	source := regexp.MustCompile(`^D\d\d( |$)`)
	seen := map[string]bool{}
	for _, c := range Cases() {
		if !name.MatchString(c.Name) {
			t.Errorf("case %q: the name is not lower_snake of two words or more", c.Name)
		}
		if seen[c.Name] {
			t.Errorf("case %q: the name is taken", c.Name)
		}
		seen[c.Name] = true
		if c.Family == "" || c.What == "" || c.Attack == nil || c.Judge == nil {
			t.Errorf("case %q lacks a family, a description, an attack or a judge", c.Name)
		}
		if !source.MatchString(c.Source) {
			t.Errorf("case %q: source %q is no row of the catalogue", c.Name, c.Source)
		}
	}
}

func TestCasesCoverTheFamilies(t *testing.T) {
	want := []string{"traversal", "symlinks", "procroot", "environ", "siblings", "hardlinks",
		"changes"}
	count := map[string]int{}
	total := 0
	for _, c := range Cases() {
		count[c.Family]++
	}
	for _, f := range want {
		if count[f] == 0 {
			t.Errorf("family %s has no case", f)
		}
		total += count[f]
	}
	if total < 45 {
		t.Errorf("the families %v have %d cases, want at least 45", want, total)
	}
}

// hookName is how the kernel's lsm_hook_defs.h spells hooks.
var hookName = regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)

func TestHooksAreNamed(t *testing.T) {
	// What the jail's start has to get right has no hook.
	without := regexp.MustCompile(
		`^(environ_(cloud|forge|ssh|session|loader|git|proc_self).*|fd_inherited_(file|copied))$`)
	for _, c := range Cases() {
		if len(c.Hooks) == 0 && !without.MatchString(c.Name) {
			t.Errorf("case %q names no hook", c.Name)
		}
		for _, h := range c.Hooks {
			if !hookName.MatchString(h) {
				t.Errorf("case %q: hook %q", c.Name, h)
			}
		}
	}
}

const document = "../docs/adversary.md"

func TestDocument(t *testing.T) {
	want := describeCases()
	if *update {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what the case table says; run go test ./adversary -update:\n%s",
			document, diff)
	}
}

// documentHead has tildes where the document has backquotes.
const documentHead = `# The adversary suite

<!-- Written from the case table by go test ./adversary -update. Do not edit. -->

~agent-lock adversary~ attacks a jail and says from outside whether it held. It makes
every attack twice: first without any jail, as the invoking user, where it must succeed
(the *control*); then in the jail. What it attacks is planted fresh each time: a random
32-byte *canary* in a file, a name, an attribute, a process, a descriptor.

| outcome | meaning |
|---|---|
| denied | nothing got out, nothing outside changed; the errno is what the attacker was told |
| leaked | the canary got out, or a file, socket or process outside was touched |
| known | leaked, as the jail documents; not counted without ~--strict~ |
| skipped | the control failed, so the case proves nothing here; the reason is given |
| broken | the attack was not made or did not end; the run then counts as failed (125) |

The attacker's word decides nothing. It is told paths and process ids, never a canary. A
run begins with a check that ordinary work in the project succeeds: a jail that stops
everything does not pass. ~denied~ without an errno means that the attacker saw no error
and the outside saw no effect.

~--against CMD~ attacks another jail: CMD is split into words as by a shell, ~{}~ in it
stands for the project directory, and the attacker's command is appended. ~--against env~
is no jail at all; every case then leaks or is skipped, so each of them can fail.

The exit status is the number of leaks, at most 100, and 125 when the suite could not run.

~--user root~ makes the attacks, and their controls, as root, who has cases of its own.
None of them does harm: a control opens without writing or restores what it changed, and
what would touch the whole machine is made in guests of ~vmtest~ only and skipped elsewhere.

## Adding a case

A case is one struct in the file of its family in ~adversary/~. It has a name, the report
it comes from, an attack (inside), a judge (outside) and, if the canary file is not
enough, a setup (outside). Then run ~go test ./adversary -update~ and
~agent-lock adversary --against env --run NAME~: it has to leak.

An attack that changes its process for good says ~Fresh: true~ and gets a process of its
own. One that needs the runner to act in mid-attack calls ~Sync~ and has a ~Meanwhile~.
One that only root can make says ~Root: true~, and ~Guest: true~ if it changes the machine.

## Cases

Sources are rows of the attack catalogue (D01 to D74) and the public reports behind them.
Hooks are those of which any one is expected to stop the attack; none means that the way
the jail starts its command has to. That a name exists outside is not counted as a leak.
`

// describeCases is the text of the document.
func describeCases() string {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(documentHead, "~", "`"))
	family := ""
	for _, c := range Cases() {
		if c.Family != family {
			family = c.Family
			fmt.Fprintf(&b, "\n### %s\n\n", family)
			b.WriteString("| case | the attacker | source | hooks |\n|---|---|---|---|\n")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.Name, c.What, c.Source,
			strings.Join(c.Hooks, ", "))
	}
	return b.String()
}
