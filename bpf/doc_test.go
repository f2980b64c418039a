package bpf

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/hooks.md and sums_bpfel.go")

// docs/hooks.md is the hook table, written out.
func TestHooksDocument(t *testing.T) {
	compareFile(t, "../docs/hooks.md", hooksDocument())
}

// compareFile compares a file that is written by -update with what it should hold.
func compareFile(t *testing.T, path, want string) {
	t.Helper()
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
		t.Errorf("%s is out of date (go generate ./bpf rewrites it):\n%s", path, diff)
	}
}

func hooksDocument() string {
	var b strings.Builder
	b.WriteString(`# Hooks

Every LSM hook that the jail uses, written from the table in bpf/hooks.go. A
required hook that the kernel lacks means that no jail is built; any hook that
the kernel has must load and attach. "Since" is the first kernel series at or
after 6.1 that has the hook. Kernels built without CONFIG_SECURITY_PATH have no
path_* hooks; there the inode_* hooks do their work.

| hook | used | closes | since | required | without it |
|---|---|---|---|---|---|
`)
	for _, h := range Hooks() {
		need, without := "yes", "no jail"
		if !h.Required {
			need, without = "no", h.Without
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n",
			h.Name, h.When, h.Closes, h.Since, need, without)
	}
	b.WriteString(`
## Two programs for one hook

Where a hook's prototype differs between kernels there is a program for each;
the one whose number of parameters the kernel's own types (BTF) show is loaded.

| hook | programs |
|---|---|
`)
	for _, h := range Hooks() {
		if len(h.Programs) < 2 {
			continue
		}
		var programs []string
		for _, p := range h.Programs {
			programs = append(programs, fmt.Sprintf("`%s` (%d parameters)", p.Name, p.Params))
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", h.Name, strings.Join(programs, ", "))
	}
	b.WriteString(`
## Programs that are no LSM hooks

| program | does |
|---|---|
| ` + "`descriptors`" + ` (iter/task_file) | tells the supervisor where inodes live |
| ` + "`supervisor_exit`" + ` (tp_btf/sched_process_exit) | ends all rights with the supervisor |
| ` + "`udp_port_taken`" + ` (fexit/udp_lib_get_port) | knows the jail's own UDP ports |

With ` + "`--layers all`" + `, where Landlock is asked first, each program whose hook
Landlock has too runs a second time before both (fmod_ret of the security_* function).
`)
	return b.String()
}
