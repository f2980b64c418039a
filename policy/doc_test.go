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

func writeNames(b *strings.Builder, n Names) {
	row := func(names []string, what string) {
		fmt.Fprintf(b, "| `%s` | %s |\n", strings.Join(names, "`, `"), what)
	}
	row(n.Protected, "protected: not changed, since programs outside act on them later")
	row(n.InGit, "protected in a `.git` that the jail has not made")
	row(n.InModules, "protected in the modules and worktrees of such a `.git`")
	row(n.Denied, "denied: neither read nor changed, unless they are directories")
	row(n.Allowed, "not denied")
}

func networkSection() string {
	var b strings.Builder
	b.WriteString("## Network\n\n| network | gives |\n|---|---|\n")
	for _, n := range []Network{NetworkNone, NetworkWeb, NetworkHost} {
		gives := n.Gives()
		if n == NetworkWeb {
			gives += ", and " + NetworkNone.Gives()
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", n, gives)
	}
	b.WriteString(`
Own listeners are sockets that the jail made and that hold their port alone: with
SO_REUSEADDR a UDP port could be somebody else's as well, and SO_REUSEPORT is refused
under ` + "`--net web`" + ` (ENOPROTOOPT). Link-local and metadata addresses are never reached,
nor are they in the form of IPv4-mapped, NAT64, 6to4 and similar addresses; port 53 of
a resolver is. Sockets other than Unix, TCP, UDP and rtnetlink, which can only ask, are
not made. Under ` + "`--net none`" + ` the jail has a network namespace of its own.

`)
	return b.String()
}

// long: it is one text.
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
	b.WriteString(strings.ReplaceAll(asRoot, "~", "`"))
	b.WriteString(`
## Names anywhere in the project

These hold at any depth, whether what is named exists or not, and without regard to
case. A flag that names the path opens it.

| names | are |
|---|---|
`)
	writeNames(&b, DefaultNames())
	b.WriteString(`
A repository that the jail has cloned is free of them, and so is what lies in
` + "`node_modules`: `git clone` and `npm install`" + ` write such names.

## Flags

| flag | gives |
|---|---|
| ` + "`--ro PATH`" + ` | read |
| ` + "`--exec PATH`" + ` | read, execute |
| ` + "`--rw PATH`" + ` | read, write, execute |
| ` + "`--deny PATH`" + ` | nothing: hides it, also below an allowed path |
| ` + "`--protect NAME`" + ` | protects what is called so, anywhere in the project |
| ` + "`--socket PATH`" + ` | connect, to a Unix socket of the host's |
| ` + "`--net NETWORK`" + ` | web (default), none or host, see below |
| ` + "`--hardlinks MODE`" + ` | allow, readonly (default) or deny: what may be done to a ` +
		`file in a writable place that has another name, which may be outside |
| ` + "`--user NAME`" + ` | runs the command as NAME, see [as root](#as-root) |
| ` + "`--outside hide or deny`" + ` | what is outside is missing (ENOENT) or refused (EACCES) |

A path may end in ` + "`*`: `--rw '~/.claude.json*'`" + ` is for all names in that directory
that begin so, those to come too. A rule holds for what takes the place of its path
later, and for what was there if that is moved.

Paths that lead through a symbolic link are refused, as an earlier jail could have made it;
root's in a system directory (a moved ` + "`/home`" + `) is followed. Name what it points to.
Git's files in the home directory may be links (dotfiles) that lie in ` + "`~` or" + `
` + "`~/.config`" + `; from there on none is followed.

` + networkSection() + `## Environment

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
JSON object: ` + "`time`, `hook`, `tried`, `path`, `address`, `errno`, `pid`, `comm`" + `,
` + "`rule` and `remedy`" + `, the flag that would allow it.
`)
	return b.String()
}

const asRoot = `
## As root

The command runs as the user who called sudo, without capabilities. ~--user NAME~ runs
it as somebody else: with NAME's home directory, shell and harmless groups. The caller's
home directory can be given to no jail either way.

With ~--user root~ the command has root's capabilities, for what ~apt~, ~make install~ or
a test needs below the project: owners, modes, other users' files and processes in the
jail, low ports. Beyond that they are refused:

- **Files.** Of the paths above, but for ~DIR~, the private directories and ~/dev~, root may
  use what everyone may, by its mode and by those of the directories that lead to it. In
  ~/proc~ that does not concern the jail's own processes. A path that you allow with a flag
  is root's as it is yours.
- **Left behind.** No regular file gets a set-user-ID or set-group-ID bit or capabilities,
  and one that has such a bit is not changed. No device node is made, or opened when it
  came with the project. What root makes in the project belongs to root.
- **Capabilities.** These work: CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID, SETPCAP,
  NET_BIND_SERVICE, IPC_LOCK, IPC_OWNER, SYS_PTRACE, each on what is in the jail. All
  others are refused. So there is no ~mount~, ~unshare~, raw socket or lower nice value,
  limits are not raised, and programs that write to the audit log may complain.
- **Control groups.** The jail has a cgroup namespace of its own.
- **Environment.** ~SUDO_UID~, ~SUDO_GID~ and ~SUDO_USER~ are passed on: git takes them as
  leave to work in the caller's project.

Root that was not called by sudo, and says no ~--user~, runs the command as root without
any capability; the first two points hold for it too.
`
