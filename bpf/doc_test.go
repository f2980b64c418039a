package bpf

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/hooks.md")

// docs/hooks.md is the hook table, written out.
func TestHooksDocument(t *testing.T) {
	const path = "../docs/hooks.md"
	want := hooksDocument()
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
		t.Errorf("%s differs from the table (go test ./bpf -update rewrites it):\n%s", path, diff)
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
`)
	return b.String()
}
