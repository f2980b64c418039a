package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agent-lock/agent-lock/adversary"
	"github.com/agent-lock/agent-lock/jail"
	"github.com/agent-lock/agent-lock/report"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/layers.md from the tables")

// Every known leak names a case, once.
func TestKnownLeaksAreCases(t *testing.T) {
	var cases []string
	for _, c := range adversary.Cases() {
		cases = append(cases, c.Name)
	}
	seen := map[string]bool{}
	for _, group := range withoutBPF() {
		for _, name := range group.cases {
			if !slices.Contains(cases, name) {
				t.Errorf("known leak %s is no case", name)
			}
			if seen[name] {
				t.Errorf("known leak %s is listed twice", name)
			}
			seen[name] = true
		}
	}
}

func TestKnownLeaks(t *testing.T) {
	for _, tt := range []struct {
		layers string
		abi    int
		name   string
		want   bool
	}{
		{"all", 6, "hardlink_existing_read", true},
		{"all", 6, "change_chmod", false},
		{"bpf", 0, "socket_stream", false},
		{"landlock,seccomp", 6, "change_chmod", false},
		{"landlock,seccomp", 6, "metadata_statx", true},
		{"landlock,seccomp", 6, "hardlink_existing_read", true},
		{"landlock,seccomp", 8, "socket_stream", true},
		{"landlock,seccomp", 9, "socket_stream", false},
		{"landlock,seccomp", 5, "socket_abstract_stream", true},
		{"landlock,seccomp", 6, "socket_abstract_stream", false},
		{"landlock,seccomp", 6, "ns_user", false},
		{"landlock", 6, "ns_user", true},
		{"bpf", 0, "metadata_handle", true},
		{"bpf,seccomp", 0, "metadata_handle", false},
		{"landlock", 6, "traversal_absolute", false},
		{"landlock,seccomp,view", 6, "metadata_statx", false},
		{"view,seccomp", 9, "socket_stream", false},
		{"view,seccomp", 9, "socket_in_project", true},
		{"view,seccomp", 9, "fd_passed_dir", true},
		{"view,seccomp", 9, "key_join", false},
		{"view", 9, "key_join", true},
		{"bpf,seccomp,view", 9, "dns_configured", true},
		{"bpf,seccomp,view", 9, "metadata_statx", false},
	} {
		layers, err := jail.ParseLayers(tt.layers)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := knownLeaks(layers, tt.abi)[tt.name]; got != tt.want {
			t.Errorf("%s under %s, ABI %d: known %v, want %v", tt.name, tt.layers, tt.abi, got,
				tt.want)
		}
	}
}

// The suite runs once for each set of layers, and once without any.
func TestAttacks(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"agent-lock adversary --json -"}},
		{[]string{"--run", "^change", "--layers", "all", "--layers", "bpf", "--layers", "all"},
			[]string{"agent-lock adversary --json - --layers all --run ^change",
				"agent-lock adversary --json - --layers bpf --run ^change"}},
	} {
		f := vmtestFlags{users: []string{"user"}}
		fs := flag.NewFlagSet("test", flag.ContinueOnError)
		fs.Var(&f.layers, "layers", "")
		fs.StringVar(&f.run, "run", "", "")
		if err := fs.Parse(tt.args); err != nil {
			t.Fatal(err)
		}
		var got []string
		steps, err := f.suites()
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			got = append(got, strings.Join(step.Argv, " "))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.args, diff)
		}
	}
}

// A listed leak that is denied is noted.
func TestNoteTight(t *testing.T) {
	var stderr bytes.Buffer
	j := adversary.Jail{Known: map[string]string{"a_b": "why", "c_d": "why"}}
	noteTight(stdio{err: &stderr}, j,
		[]report.Result{{Name: "a_b", Outcome: report.Denied}, {Name: "c_d", Outcome: report.Known},
			{Name: "e_f", Outcome: report.Denied}})
	if got := stderr.String(); !strings.Contains(got, "a_b") || strings.Count(got, "note:") != 1 {
		t.Errorf("notes = %q, want one, about a_b", got)
	}
}

const layersPage = "../../docs/layers.md"

func TestLayersPage(t *testing.T) {
	want := describeLayers()
	if *update {
		if err := os.WriteFile(layersPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(layersPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what the tables say; run go test ./cmd/agent-lock -update:\n%s",
			layersPage, diff)
	}
}

// layersHead has tildes where the page has backquotes.
const layersHead = `# Layers

<!-- Written from the tables in jail/ and cmd/agent-lock/ by
go test ./cmd/agent-lock -run LayersPage -update. Do not edit. -->

A jail has namespaces, dropped privileges and a cleaned environment in any case. What its
processes may do is decided by up to four parts of the kernel, each on its own:

| layer | what it decides | when it decides |
|---|---|---|
| ~bpf~ | everything that [docs/hooks.md](hooks.md) lists, on the object | first |
| ~landlock~ | opening, making, removing and moving files; signals | after ~bpf~ |
| ~seccomp~ | system calls that no program in a jail needs | before both |
| ~view~ | what is there: a root directory with what the rules show, and no more | before all |

~--layers LIST~ chooses, ~all~ takes the four of them; without it a jail has ~bpf~ and, as far
as the kernel has it, ~seccomp~ (~-v~ says how far). A layer that is named and that the kernel
lacks is an error: status 125, nothing is started.

**Beside ~bpf~**, Landlock repeats the policy, so that a mistake in one of them is not a way
out. It is the coarser one: a rule on a file becomes one on the files of its directory,
since a file that is replaced is another one to Landlock; what is hidden below a visible
directory is ~bpf~'s alone, and so are Unix sockets and the network. Most kernels ask Landlock
before the BPF LSM. Then the BPF programs of the hooks that both have are attached a second
time, before the function that asks the security modules, so that a refusal keeps its
errno (~ENOENT~ where git wants it) and its record. The kernel may leave such a twin out when it
was preempted in it; the program itself stays and decides.

**A view** is what most other sandboxes are made of. Beside ~bpf~ it closes what no hook is
asked about: whether a name outside exists (access(2), chdir(2), ~O_PATH~, EEXIST). It is not in
the default, because what is missing cannot be explained: there is no denial, with no flag in
it. And it is made once: a file that a rule names is the one that was there at the start, in
its place nothing else can be put (EBUSY), and rules for names (~'~/.claude.json*'~) and for
what is missing are refused. Files are copied, not moved, from one rule's place to another's.

**Without ~bpf~**, on a kernel that has no BPF LSM or may not use it, ~--layers
landlock,seccomp~ is a weaker jail. It says so when it starts, and lists what is lost. Root is
needed all the same. Mounts help out: all that no rule lets the jail write is mounted
read-only, so that modes, owners and times stay, and what a rule takes away below what
another gives (~--deny~ in the project, ~/etc/ssh~) is covered, as it is at the start. So files
do not move between the project and another ~--rw~ directory, they are copied.
~--hardlinks deny~ is refused. As root (no ~sudo~) ~/proc~ is read-only, and root has only the
capabilities that reach nobody else (CHOWN, DAC_OVERRIDE, KILL and their like). With
~--layers landlock,seccomp,view~ less is lost, with ~view,seccomp~ the kernel needs no
security module at all.

## What is lost without the BPF layer

| lost | until Landlock's ABI | closed by seccomp | by a view |
|---|---|---|---|
`

func describeLayers() string {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(layersHead, "~", "`"))
	for _, l := range jail.Losses() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", l.What, number(l.ABI), yes(l.Seccomp),
			yes(l.View))
	}
	b.WriteString(strings.ReplaceAll(`
Linux 6.1 has ABI 2, 6.6 ABI 3, 6.7 ABI 4, 6.10 ABI 5, 6.12 ABI 6, 6.15 ABI 7; a
distribution may have more.

## Cases that leak without the BPF layer

~agent-lock adversary --layers landlock,seccomp~ counts every leak that is not in this list,
and notes what is in it and does not leak; so it does for other sets without ~bpf~.
~hardlink_existing_read~ and ~hardlink_crowd_read~ leak with all layers.

| cases | why | until ABI | closed by seccomp | by a view |
|---|---|---|---|---|
`, "~", "`"))
	for _, g := range withoutBPF() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", strings.Join(g.cases, ", "), g.why,
			number(g.from), yes(g.seccomp), yes(g.view))
	}
	b.WriteString(`
## System calls that the filter refuses

Calls of x32 are refused (ENOSYS); those of 32-bit programs have the same list beside
` + "`bpf`" + `, and none works without it. "By arguments": namespaces by their flags,
terminal injection by the request, sockets by family, type and protocol.

| call | error | when |
|---|---|---|
`)
	for _, c := range jail.RefusedCalls() {
		var when []string
		if c.Sometimes {
			when = append(when, "by arguments")
		}
		if c.Alone {
			when = append(when, "without bpf")
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.Name, strings.Join(c.Errnos, ", "),
			strings.Join(when, ", "))
	}
	return b.String()
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
