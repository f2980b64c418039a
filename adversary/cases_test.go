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
	if len(os.Args) > 1 && os.Args[1] == loggerVerb {
		os.Exit(beLogger(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// The attacker knows the cases of the tests too. This comes before init, which runs it.
var _ = func() bool {
	if len(os.Args) > 1 && os.Args[1] == attackerVerb {
		lifecycle = append(lifecycle, append(badCases, loggedCases...)...)
	}
	return true
}()

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
		if c.Family == "" || c.What == "" || c.Attack == nil || c.Judge.find == nil {
			t.Errorf("case %q lacks a family, a description, an attack or a judge", c.Name)
		}
		if !source.MatchString(c.Source) {
			t.Errorf("case %q: source %q is no row of the catalogue", c.Name, c.Source)
		}
	}
}

var (
	// One system call, with what its name alone leaves open.
	systemCall = regexp.MustCompile(`^[a-z][a-z0-9_]*(\([A-Z][A-Z0-9_]*\))?( \(32-bit\))?$`)
	series     = regexp.MustCompile(`^(5\.1[1-9]|[6-9]\.\d+)$`) // after 5.10
)

// gaps returns what is missing or wrong in what a case says about itself.
func gaps(c Case) []string {
	var found []string
	for name := range strings.SplitSeq(c.Calls, ", ") {
		if !systemCall.MatchString(name) {
			found = append(found, fmt.Sprintf("calls %q: %q is no system call", c.Calls, name))
		}
	}
	if c.Judge.Proof == "" {
		found = append(found, "no proof")
	}
	if c.Since != "" && !series.MatchString(c.Since) {
		found = append(found, fmt.Sprintf("since %q: no series after 5.10", c.Since))
	}
	// A newline or a bar would end a cell of the table.
	for _, text := range []string{c.What, c.Needs, c.Judge.Proof} {
		if strings.TrimSpace(text) != text || strings.ContainsAny(text, "|\n") {
			found = append(found, fmt.Sprintf("a text for a table: %q", text))
		}
	}
	return found
}

func TestCasesHaveNoGaps(t *testing.T) {
	for _, c := range Cases() {
		for _, gap := range gaps(c) {
			t.Errorf("case %q: %s", c.Name, gap)
		}
	}
}

func TestGaps(t *testing.T) {
	proof := Judge{Proof: "a file is gone"}
	tests := []struct {
		c    Case
		want int
	}{
		{Case{Calls: "open_tree, move_mount", Judge: proof}, 0},
		{Case{Calls: "io_uring(OPENAT), ioctl(TIOCSTI) (32-bit)", Since: "5.15", Judge: proof}, 0},
		{Case{Judge: proof}, 1},
		{Case{Calls: "openat2"}, 1},
		{Case{Calls: "openat,read", Judge: proof}, 1},
		{Case{Calls: "then it reads", Judge: proof}, 1},
		{Case{Calls: "openat2", Since: "5.6", Judge: proof}, 1},
		{Case{Calls: "openat2", Since: "v6.6", Judge: proof}, 1},
		{Case{Calls: "openat2", Needs: "a | b", Judge: proof}, 1},
		{Case{Since: "later", Needs: "\n"}, 4},
	}
	for _, tt := range tests {
		if got := gaps(tt.c); len(got) != tt.want {
			t.Errorf("gaps(%+v) = %q, want %d", tt.c, got, tt.want)
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

Of a jail that appends its denials to a log (~{log}~ in its command line), a denied case also
says whether the denial was recorded, as a second score. Ours records what its programs
refuse. It cannot record what is not there to be refused (~ESRCH~ and ~ENOENT~ of other
processes and of hidden mounts), nor what the kernel's own permissions or seccomp refuse
before; and a capability that root's programs ask for is told once.

~--against CMD~ attacks another jail: CMD is split into words as by a shell, ~{}~ in it
stands for the project directory, and the attacker's command is appended. ~--against env~
is no jail at all; every case then leaks or is skipped, so each of them can fail.

The exit status is the number of leaks, at most 100, and 125 when the suite could not run.

~--user root~ makes the attacks, and their controls, as root, who has cases of its own.
None of them does harm: a control opens without writing or restores what it changed, and
what would touch the whole machine is made in guests of ~vmtest~ only and skipped elsewhere.

## Adding a case

A case is one struct in the file of its family in ~adversary/~. It has a name, the report
it comes from, the system calls that matter, an attack (inside), a judge (outside) with
what counts as proof and, if the canary file is not enough, a setup (outside). Then run
~go test ./adversary -update~ and ~agent-lock adversary --against env --run NAME~: it has
to leak.

An attack that changes its process for good says ~Fresh: true~ and gets a process of its
own. One that needs the runner to act in mid-attack calls ~Sync~ and has a ~Meanwhile~.
One that only root can make says ~Root: true~, and ~Guest: true~ if it changes the machine.

## Cases

*Calls* are the system calls that matter, in order, by their names on x86-64: the read
after an open goes without saying. ~io_uring(OPENAT)~ is an operation of a ring.
*Needs* is what the attack takes besides an ordinary user on x86-64 or arm64 with both
directories on one file system; a kernel is the first series in which that user can make
the calls, if it is later than 5.10. A descriptor can be passed to the attacker, and the
runner can act in mid-attack, only if the jail hands its standard input on.
*Proof* is what is looked at outside. A canary is a fresh one for each attempt.
*Hooks* are those of which any one is expected to stop the attack; none means that the way
the jail starts its command has to. *Sources* are rows of the attack catalogue (D01 to
D74) and the public reports behind them. That a name exists outside counts as no leak.
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
			b.WriteString("| case | the attacker | calls | needs | proof | hooks | source |\n" +
				"|---|---|---|---|---|---|---|\n")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", c.Name, c.What, c.Calls,
			preconditions(c), c.Judge.Proof, strings.Join(c.Hooks, ", "), c.Source)
	}
	return b.String()
}

// preconditions is all that a case needs.
func preconditions(c Case) string {
	var all []string
	if c.Root {
		all = append(all, "root")
	}
	if c.Guest {
		all = append(all, "a guest of vmtest")
	}
	if c.Needs != "" {
		all = append(all, c.Needs)
	}
	if c.Since != "" {
		all = append(all, "Linux "+c.Since)
	}
	return strings.Join(all, "; ")
}
