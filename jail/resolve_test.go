package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	for _, l := range r.labels {
		if l.rights == 0 && !l.ruled {
			continue
		}
		path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", l.fd))
		if err != nil {
			t.Fatal(err)
		}
		if rel, ok := strings.CutPrefix(path, top+"/"); ok {
			got[rel] = l.rights.String()
		}
	}
	return got
}

// long: a table.
func TestResolve(t *testing.T) {
	top := tree(t, "home/proj/sub/", "home/proj/secret/", "home/proj/secret/open", "home/key",
		"data/deep/er/", "link -> TOP/data", "home/rel -> ../data/deep", "home/dead -> none")
	rule := func(path string, rights policy.Rights) policy.Rule {
		return policy.Rule{Path: filepath.Join(top, path), Rights: rights, Optional: true}
	}
	keep := func(path string, rights policy.Rights) policy.Rule {
		r := rule(path, rights)
		r.Keep = true
		return r
	}
	for _, tt := range []struct {
		name  string
		rules []policy.Rule
		want  map[string]string
	}{
		{"directory_and_what_leads_to_it",
			[]policy.Rule{rule("home/proj", policy.Read|policy.Write)},
			map[string]string{"home": "self", "home/proj": "read write fixed"}},
		{"through_links",
			[]policy.Rule{rule("link/deep", policy.Read), rule("home/rel/er", policy.Read)},
			map[string]string{"link": "self", "data": "self", "data/deep": "read fixed",
				"home": "self", "home/rel": "self", "data/deep/er": "read fixed"}},
		{"hidden_inside_shown",
			[]policy.Rule{rule("home/proj", policy.Read), rule("home/proj/secret", 0)},
			map[string]string{"home": "self", "home/proj": "read fixed",
				"home/proj/secret": "fixed"}},
		{"shown_inside_hidden", []policy.Rule{rule("home/proj", policy.Read),
			rule("home/proj/secret", 0), rule("home/proj/secret/open", policy.Read)},
			map[string]string{"home": "self", "home/proj": "read fixed",
				"home/proj/secret": "fixed files", "home/proj/secret/open": "read"}},
		{"no_label_on_the_way_inside_shown",
			[]policy.Rule{rule("home", policy.Read), rule("home/proj/sub", 0)},
			map[string]string{"home": "read fixed", "home/proj/sub": "fixed"}},
		{"missing", []policy.Rule{rule("home/none", policy.Read)},
			map[string]string{"home": "self"}},
		{"dead_link", []policy.Rule{rule("home/dead", policy.Read)},
			map[string]string{"home": "self", "home/dead": "self"}},
		{"the_last_rule_for_an_object_wins",
			[]policy.Rule{rule("home/key", policy.Read),
				rule("home/key", policy.Read|policy.Write)},
			map[string]string{"home": "self files", "home/key": "read write"}},
		{"kept_in_a_hidden_directory", []policy.Rule{keep("home/key", policy.Read)},
			map[string]string{"home": "self names files", "home/key": "read"}},
		{"kept_and_missing", []policy.Rule{keep("home/none", policy.Read)},
			map[string]string{"home": "self names"}},
		{"hidden_file_on_a_way_that_keeps_its_name", []policy.Rule{
			rule("home", policy.Read|policy.Write), keep("home/proj/secret/open", 0)},
			map[string]string{"home": "read write fixed files",
				"home/proj":             "read write fixed way",
				"home/proj/secret":      "read write fixed way names files",
				"home/proj/secret/open": ""}},
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

// Each label gets the address that the kernel told, of the dentry or of the inode.
func TestAddresses(t *testing.T) {
	r := &rules{policy: &policy.Policy{}, labels: map[object]*label{
		{1, 1}: {fd: 3, dir: true, rights: bpf.Self | bpf.Names},
		{1, 2}: {fd: 4, rights: bpf.Read},
		{1, 3}: {fd: 5, ruled: true},
		{1, 4}: {fd: 6}, // seen on the way, and nothing else
	}, names: []nameRule{{entry: entry{3, "n"}, prefix: true, rights: bpf.Write}}}
	fds := []bpf.Descriptor{{FD: 3, Inode: 0x10, Dentry: 0x11, Parent: 0x1},
		{FD: 4, Inode: 0x20, Dentry: 0x21, Parent: 0x11},
		{FD: 5, Inode: 0x30, Dentry: 0x31, Parent: 0x50}, // mounted by itself
		{FD: 6, Inode: 0x40, Dentry: 0x41, Parent: 0x60}}
	labels, names, err := r.addresses(fds)
	want := map[uint64]bpf.Rights{0x11: bpf.Self | bpf.Names, 0x20: bpf.Read, 0x30: 0,
		0x50: bpf.Files | bpf.Way}
	if diff := cmp.Diff(want, labels); diff != "" || err != nil {
		t.Fatalf("addresses: %v (-want +got):\n%s", err, diff)
	}
	name := bpf.Name{Name: "n", Prefix: true, Directory: 0x11, Rights: bpf.Write}
	if !slices.Contains(names, name) {
		t.Errorf("addresses: names = %v, want %v in it", names, name)
	}
	if _, _, err := r.addresses(fds[:2]); err == nil {
		t.Error("addresses without that of one label = nil, want an error")
	}
}

// Where a rule's links are followed in some directories alone, a jail's link elsewhere gives
// nothing.
func TestResolveLinksOfSomeDirectories(t *testing.T) {
	top := tree(t, "home/dotfiles/config/git/", "home/.config -> dotfiles/config",
		"home/.gitconfig -> dotfiles/gitconfig", "home/dotfiles/gitconfig", "home/key",
		"home/dotfiles/config/git/config -> TOP/home/key")
	home := filepath.Join(top, "home")
	p := &policy.Policy{}
	for _, name := range []string{".gitconfig", ".config/git/config"} {
		p.Rules = append(p.Rules, policy.Rule{Path: filepath.Join(home, name), Keep: true,
			Rights: policy.Read, Optional: true, Links: []string{home}})
	}
	for i, want := range []string{"home/dotfiles/gitconfig", ""} {
		got, err := p.Rules[i].Target()
		if want == "" && !errors.Is(err, unix.ELOOP) ||
			want != "" && got != filepath.Join(top, want) {
			t.Errorf("Target of %s = %q, %v; want %q", p.Rules[i].Path, got, err, want)
		}
	}
	r, err := resolve(p, "/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	labels := labelsOf(t, r, top)
	if got := labels["home/dotfiles/gitconfig"]; !strings.Contains(got, "read") {
		t.Errorf("what ~/.gitconfig leads to is labelled %q, want read", got)
	}
	if got, ok := labels["home/key"]; ok {
		t.Errorf("what a jail's link leads to is labelled %q, want no label", got)
	}
}

// A mount below a rule's path gets its rights where it is, not where a link leads by now.
func TestLabelMountsFollowsNoLink(t *testing.T) {
	top := tree(t, "proj/a/data/", "x/data/", "proj/b -> TOP/x")
	for name, wantErr := range map[string]error{"proj/b/data": unix.ELOOP, "proj/a/data": nil} {
		p := &policy.Policy{Rules: []policy.Rule{{Path: filepath.Join(top, "proj"), Mounts: true,
			Rights: policy.Read | policy.Write}}}
		r, err := resolve(p, "/proc/self")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		r.mounts = []mount{{id: 1, point: filepath.Join(top, name)}} // of another mount there
		if err := r.labelMounts(); !errors.Is(err, wantErr) {
			t.Errorf("labelMounts with a mount on %s = %v, want %v", name, err, wantErr)
		}
		labels := labelsOf(t, r, top)
		for _, outside := range []string{"x/data", "proj/a/data"} {
			if got, ok := labels[outside]; ok {
				t.Errorf("%s is labelled %q, want no label", outside, got)
			}
		}
	}
}
