package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckProject(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(top, "home")
	project := filepath.Join(home, "proj")
	if err := os.MkdirAll(project, 0o755); err != nil {
		t.Fatal(err)
	}
	file, link := filepath.Join(home, "file"), filepath.Join(home, "link")
	rootLink := filepath.Join(home, "root") // or of whoever runs the test
	if err := errors.Join(os.WriteFile(file, nil, 0o644), os.Symlink(project, link),
		os.Symlink(project, rootLink)); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 { // else it is a user's already
		if err := os.Lchown(link, 12345, 12345); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, dir string
		want      string // the project, or
		wantErr   string // a part of the error
	}{
		{name: "directory", dir: project, want: project},
		{name: "slash", dir: project + "/", want: project},
		{name: "user's_link", dir: link, wantErr: "which a jail could have made"},
		{name: "root's_link", dir: rootLink, wantErr: "which a jail could have made"},
		{name: "root's_in_a_system_directory", dir: "/bin/none", wantErr: "make it first"},
		{name: "below_user's_link", dir: link + "/sub", wantErr: "name that: " + project},
		{name: "empty", dir: "", wantErr: "is a variable unset?"},
		{name: "dotdot", dir: project + "/../proj", want: project},
		{name: "missing", dir: home + "/none", wantErr: "make it first"},
		{name: "file", dir: file, wantErr: "is not a directory"},
		{name: "home", dir: home, wantErr: "is the home directory"},
		{name: "above_home", dir: top, wantErr: "is above the home directory"},
		{name: "root", dir: "/", wantErr: "is above the home directory"},
		{name: "system", dir: "/usr", wantErr: "is a system directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := CheckProject(tt.dir, home)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("CheckProject(%q) = %q, %v; want an error with %q",
						tt.dir, got, err, tt.wantErr)
				}
				return
			}
			if got != tt.want || err != nil {
				t.Errorf("CheckProject(%q) = %q, %v; want %q", tt.dir, got, err, tt.want)
			}
		})
	}
}

func TestNearest(t *testing.T) {
	p := Default("/home/u/proj", "/home/u")
	for _, tt := range []struct {
		path string
		want string // the rule's path; "": none
	}{
		{"/home/u/proj/src/x.go", "/home/u/proj"},
		{"/home/u/proj", "/home/u/proj"},
		{"/home/u/proj2/x", ""},
		{"/home/u/proj-backup", ""},
		{"/home/u/.ssh/id", ""},
		{"/home/u/.gitconfig", "/home/u/.gitconfig"},
		{"/etc/hosts", "/etc"},
		{"/etc/shadow", "/etc/shadow"},
		{"/etc/ssh/ssh_host_rsa_key", "/etc/ssh"},
		{"/proc/sys/kernel/core_pattern", "/proc/sys"},
		{"/", ""},
	} {
		rule, ok := p.Nearest(tt.path)
		if rule.Path != tt.want || ok != (tt.want != "") {
			t.Errorf("Nearest(%q) = %q, %v, want %q", tt.path, rule.Path, ok, tt.want)
		}
	}
}

// The default policy writes nowhere but in the project and in what is private
// to the jail; what it hides has no rights.
func TestDefaultWritesOnlyInside(t *testing.T) {
	const project = "/home/u/proj"
	writable := append([]string{project, "/proc", "/dev/null", "/dev/zero", "/dev/full",
		"/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts"}, Private...)
	for _, r := range Default(project, "/home/u").Rules {
		want := false
		for _, path := range writable {
			want = want || r.Path == path
		}
		if got := r.Rights&Write != 0; got != want {
			t.Errorf("rule for %s: writable %v, want %v", r.Path, got, want)
		}
		if !filepath.IsAbs(r.Path) {
			t.Errorf("rule for %s is not absolute", r.Path)
		}
	}
}

func TestRemedy(t *testing.T) {
	for _, tt := range []struct {
		path string
		want Rights
		flag string
	}{
		{"/a", Read, "--ro /a"},
		{"/a", Read | Write, "--rw /a"},
		{"/a", Execute, "--exec /a"},
		{"/a", Connect, "--socket /a"},
		{"/", Read, ""},
		{"/a b", Read, "--ro '/a b'"},
		{"/it's;id", Write, `--rw '/it'\''s;id'`},
		{"", Read, ""},
	} {
		if got := Remedy(tt.path, tt.want); got != tt.flag {
			t.Errorf("Remedy(%q, %v) = %q, want %q", tt.path, tt.want, got, tt.flag)
		}
	}
}

func TestAllow(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path    string
		rights  Rights
		wantErr string
	}{
		{dir, Read, ""},
		{dir, Read | Write, ""},
		{dir, 0, ""},
		{"/", Read, "nothing would be hidden"},
		{"/", Read | Write, "system directory"},
		{"/etc", Read | Write, "system directory"},
		{"/etc", Read, ""},
	} {
		p := Default("/home/u/proj", "/no/such/home")
		before := len(p.Rules)
		err := p.Allow(tt.path, tt.rights, "--flag", "/no/such/home")
		if tt.wantErr == "" {
			if err != nil || len(p.Rules) != before+1 || p.Rules[before].Path != tt.path {
				t.Errorf("Allow(%q, %v) = %v, rules %v", tt.path, tt.rights, err, p.Rules[before:])
			}
		} else if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
			t.Errorf("Allow(%q, %v) = %v, want an error with %q",
				tt.path, tt.rights, err, tt.wantErr)
		}
	}
}
