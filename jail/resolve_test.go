package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-lock/agent-lock/bpf"
	"github.com/agent-lock/agent-lock/policy"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// tree makes directories (names ending in /), links ("a -> b") and files below
// a fresh directory, and returns that.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		name, target, isLink := strings.Cut(name, " -> ")
		path := filepath.Join(top, name)
		switch {
		case isLink:
			err = os.Symlink(strings.ReplaceAll(target, "TOP", top), path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return top
}

// labelsOf returns the labels by path below top.
func labelsOf(t *testing.T, r *rules, top string) map[string]string {
	t.Helper()
	got := map[string]string{}
	for fd, rights := range r.labelled {
		path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil {
			t.Fatal(err)
		}
		if rel, ok := strings.CutPrefix(path, top+"/"); ok {
			got[rel] = rights.String()
		}
	}
	return got
}

func TestResolve(t *testing.T) {
	top := tree(t, "home/proj/sub/", "home/proj/secret/", "home/proj/secret/open", "home/key",
		"data/deep/er/", "link -> TOP/data", "home/rel -> ../data/deep", "home/dead -> none")
	rule := func(path string, rights policy.Rights) policy.Rule {
		return policy.Rule{Path: filepath.Join(top, path), Rights: rights, Optional: true}
	}
	for _, tt := range []struct {
		name  string
		rules []policy.Rule
		want  map[string]string
	}{
		{"directory_and_what_leads_to_it",
			[]policy.Rule{rule("home/proj", policy.Read|policy.Write)},
			map[string]string{"home": "self", "home/proj": "read write"}},
		{"through_links",
			[]policy.Rule{rule("link/deep", policy.Read), rule("home/rel/er", policy.Read)},
			map[string]string{"link": "self", "data": "self", "data/deep": "read", "home": "self",
				"home/rel": "self", "data/deep/er": "read"}},
		{"hidden_inside_shown",
			[]policy.Rule{rule("home/proj", policy.Read), rule("home/proj/secret", 0)},
			map[string]string{"home": "self", "home/proj": "read", "home/proj/secret": ""}},
		{"shown_inside_hidden", []policy.Rule{rule("home/proj", policy.Read),
			rule("home/proj/secret", 0), rule("home/proj/secret/open", policy.Read)},
			map[string]string{"home": "self", "home/proj": "read", "home/proj/secret": "",
				"home/proj/secret/open": "read"}},
		{"no_label_on_the_way_inside_shown",
			[]policy.Rule{rule("home", policy.Read), rule("home/proj/sub", 0)},
			map[string]string{"home": "read", "home/proj/sub": ""}},
		{"missing", []policy.Rule{rule("home/none", policy.Read)},
			map[string]string{"home": "self"}},
		{"dead_link", []policy.Rule{rule("home/dead", policy.Read)},
			map[string]string{"home": "self", "home/dead": "self"}},
		{"the_last_rule_for_an_object_wins",
			[]policy.Rule{rule("home/key", policy.Read),
				rule("home/key", policy.Read|policy.Write)},
			map[string]string{"home": "self", "home/key": "read write"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := resolve(&policy.Policy{Rules: tt.rules}, "/proc/self")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if diff := cmp.Diff(tt.want, labelsOf(t, r, top)); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

// What was a directory when it was checked and is a link now is not followed.
func TestResolveRefusesAChangedProject(t *testing.T) {
	top := tree(t, "home/key/", "home/proj -> TOP/home/key")
	p := &policy.Policy{Rules: []policy.Rule{
		{Path: filepath.Join(top, "home/proj"), Rights: policy.Read, Direct: true},
	}}
	r, err := resolve(p, "/proc/self")
	if err == nil {
		r.Close()
	}
	if !errors.Is(err, unix.ELOOP) || !strings.Contains(err.Error(), "home/proj") {
		t.Errorf("resolve = %v, want ELOOP for home/proj", err)
	}
}

func TestResolveNeedsItsRules(t *testing.T) {
	top := tree(t)
	p := &policy.Policy{Rules: []policy.Rule{
		{Path: filepath.Join(top, "none"), Rights: policy.Read, Origin: "--ro"},
	}}
	r, err := resolve(p, "/proc/self")
	if err == nil {
		r.Close()
	}
	if !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "(--ro)") {
		t.Errorf("resolve = %v, want ENOENT that names --ro", err)
	}
}

// Two descriptors of one object: a rule's rights are not lost to "it exists".
func TestLabelsOfOneObject(t *testing.T) {
	r := &rules{labelled: map[int]bpf.Rights{3: bpf.Self, 4: bpf.Read, 5: bpf.Self}}
	fds := []bpf.Descriptor{{FD: 3, Inode: 0x10}, {FD: 4, Inode: 0x10}, {FD: 5, Inode: 0x20}}
	want := map[uint64]bpf.Rights{0x10: bpf.Read, 0x20: bpf.Self}
	for range 20 { // maps are walked in any order
		got, err := r.labels(fds)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("labels: %v (-want +got):\n%s", err, diff)
		}
	}
	if _, err := r.labels(fds[:2]); err == nil {
		t.Error("labels without the address of one inode = nil, want an error")
	}
}
