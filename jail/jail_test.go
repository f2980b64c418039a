package jail

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMount(t *testing.T) {
	for _, tt := range []struct {
		line string
		want mount
	}{
		{"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw",
			mount{36, 98 << 20, "/mnt1", "/mnt2"}},
		{`22 1 0:21 / /a\040b\011c\012d\134e rw - tmpfs none rw`,
			mount{22, 21, "/", "/a b\tc\nd\\e"}},
	} {
		got, err := parseMount(tt.line)
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(mount{})); diff != "" || err != nil {
			t.Errorf("parseMount(%q): %v (-want +got):\n%s", tt.line, err, diff)
		}
	}
	for _, line := range []string{"", "36 35 98:0", "36 35 x /a /b rw", "x 35 1:0 /a /b rw"} {
		if got, err := parseMount(line); err == nil {
			t.Errorf("parseMount(%q) = %v, want an error", line, got)
		}
	}
}

func TestVisiblePath(t *testing.T) {
	r := &rules{mounts: []mount{
		{dev: 1, root: "/", point: "/"},
		{dev: 2, root: "/", point: "/home"},
		{dev: 2, root: "/u/data", point: "/srv/data"},
		{dev: 3, root: "/sub", point: "/mnt"},
	}}
	for _, tt := range []struct {
		dev  uint32
		path string
		want string
	}{
		{1, "/etc/shadow", "/etc/shadow"},
		{2, "/u/.ssh/id", "/home/u/.ssh/id"},
		{2, "/u/data/x", "/srv/data/x"},
		{2, "/u/database", "/home/u/database"},
		{3, "/sub/x", "/mnt/x"},
		{3, "/else/x", "/else/x"},
		{9, "/x", "/x"},
		{2, "/", "/home"},
	} {
		if got := r.visiblePath(tt.dev, tt.path); got != tt.want {
			t.Errorf("visiblePath(%d, %q) = %q, want %q", tt.dev, tt.path, got, tt.want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	u := User{Name: "u", UID: 7, Home: "/home/u", Shell: "/bin/sh"}
	from := []string{
		"PATH=/bin", "TERM=xterm", "LC_ALL=C", "HOME=/root", "USER=root",
		"AWS_SECRET_ACCESS_KEY=1",
		"GITHUB_TOKEN=1", "SSH_AUTH_SOCK=/s", "LD_PRELOAD=/x.so", "NODE_OPTIONS=-r x",
		"BASH_ENV=/x",
		"DBUS_SESSION_BUS_ADDRESS=x", "WANTED=w",
	}
	got := environment(from, u, []string{"WANTED", "SET=s", "PATH=/usr/bin"})
	want := []string{
		"AGENT_LOCK=1", "HOME=/home/u", "LC_ALL=C", "LOGNAME=u", "PATH=/usr/bin", "SET=s",
		"SHELL=/bin/sh", "TERM=xterm", "TMPDIR=/tmp", "TMPPREFIX=/tmp/zsh", "USER=u", "WANTED=w",
		"XDG_RUNTIME_DIR=/run/user/7",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if env := environment(nil, u, nil); !slices.Contains(env, "PATH="+defaultPath) {
		t.Errorf("environment without PATH = %v, want the default one", env)
	}
}

func TestSplit(t *testing.T) {
	for in, want := range map[string]string{
		"/": "", "/a//b/./c/": "a b c", "../x": ".. x", "a/..": "a ..",
	} {
		if got := strings.Join(split(in), " "); got != want {
			t.Errorf("split(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCheckLSMs(t *testing.T) {
	if err := checkLSMs([]string{"lockdown", "capability", "bpf"}, ""); err != nil {
		t.Errorf("checkLSMs(with bpf) = %v, want nil", err)
	}
	lsms := []string{"lockdown", "capability", "landlock", "yama", "apparmor"}
	err := checkLSMs(lsms, "quiet lsm=bpf lsm=yama\n") // the last one counts
	if err == nil || !strings.Contains(err.Error(), "lsm=lockdown,landlock,yama,apparmor,bpf ") {
		t.Errorf("checkLSMs(without bpf) = %v, want the list that appends bpf", err)
	}
	err = checkLSMs(lsms, "root=/dev/vda1 lsm=yama,bpf\n")
	if err == nil || !strings.Contains(err.Error(), "built without CONFIG_BPF_LSM") {
		t.Errorf("checkLSMs(lsm=bpf in vain) = %v, want CONFIG_BPF_LSM named", err)
	}
}
