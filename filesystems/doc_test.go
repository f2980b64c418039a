package filesystems

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/filesystems.md")

// docs/filesystems.md lists what is tried, and on what.
func TestDocument(t *testing.T) {
	const path = "../docs/filesystems.md"
	want := document()
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
		t.Errorf("%s is not what is tried (go test ./filesystems -update rewrites it):\n%s",
			path, diff)
	}
}

func document() string {
	var b strings.Builder
	table := func(head string, names, what []string) {
		fmt.Fprintf(&b, "\n%s\n|---|---|\n", head)
		for i, name := range names {
			fmt.Fprintf(&b, "| `%s` | %s |\n", name, what[i])
		}
	}
	paragraphs := strings.Split(strings.NewReplacer("'", "`", "’", "'").Replace(documentText),
		"----\n")
	b.WriteString(paragraphs[0])
	names, what := Kinds()
	table("| name | file system |", names, what)
	b.WriteString(paragraphs[1])
	names, what = Names()
	table("| check | what |", names, what)
	b.WriteString(paragraphs[2])
	for _, c := range checks() {
		for _, d := range c.differs {
			on := ""
			if d.on != "" {
				on = fmt.Sprintf(" on `%s`", d.on)
			}
			fmt.Fprintf(&b, "- `%s`%s: `%s`. %s\n", c.name, on, d.failed, d.why)
		}
	}
	b.WriteString(paragraphs[3])
	return b.String()
}

// documentText is the page between its tables, with ' for the backquote and ’ for '.
const documentText = `# File systems

'make filesystems KERNELS=6.1,6.12' uses files as programs do, on file systems of every kind in
a guest: once outside the jail and once in it, by the same user, in two directories that were
filled alike. Every check must see the same in both. What fails alike in both is 'unsupported':
that file system lacks it. A file system that the kernel lacks is 'unsupported' too, never a
pass. 'ATTACK=.' also runs the whole adversary suite with its arena on ext4, two of the
overlays and FUSE with passthrough.

The lists are written from the code, and the target keeps them true.

## On
----

Debian’s kernels for cloud machines have no 9p; the others do, such as '6.12.117+deb12-amd64'.

## What is done
----

## What differs in the jail

----

## Overlays

An overlay turns each operation into operations on its layers, and the hooks see both. The
first is decided as any other. The second is on files that the jail may not name; it is let
pass because of the credentials that the kernel lends the task meanwhile: those of whoever
mounted the overlay. When a jail starts, the supervisor reads where they are, for the overlays
that the policy’s files are on and for overlays among their layers (at most 3, in the first 64
layers); the programs compare addresses. While overlayfs makes a file, it works with a copy;
that one is known by the list of groups and the user namespace that it shares with them.

A jailed process cannot come by such credentials. Its own were made by setgroups(2) in the
jail; personalities of io_uring are refused; and where else the kernel overrides credentials
for a process, access(2) and core dumps, they are a copy of its own. So naming a layer’s file
by its own path is refused as before: the cases 'layer_*' and 'core_dump' of the suite try.

It takes the types of overlayfs from the kernel or its module
('CONFIG_DEBUG_INFO_BTF_MODULES'). Without them, and for overlays that came by descriptor from
elsewhere, what an overlay does on its layers is refused.

## FUSE

What a server does for a jailed process, it does as itself, outside. With passthrough (since
6.9) the kernel opens and uses another file in the place of the server’s own; that open is let
pass when the file asked for is on FUSE and the other one is opened under other credentials than
the task’s. A jailed process can be no such server, which needs '/dev/fuse' and a mount. Files on
an overlay behind a server are refused.

No package of Debian 12 asks for passthrough: libfuse does from 3.17 on, Debian 12 has 3.14. So
'fuse-passthrough' has a small server of ours, which refuses to read and write by itself: a check
that passes shows that the kernel did.
`
