//go:build !guest

package jail

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/agent-lock/agent-lock/policy"
	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// secondVariable turns the test binary into a process that puts the second layers
// over itself and becomes a shell.
const secondVariable = "AGENT_LOCK_SECOND_CHILD"

// secondTask is what that process is told.
type secondTask struct {
	Rules   []policy.Rule
	WithBPF bool // as if that layer were there
	Free    bool // the control: no layers
	Nested  bool // Landlock and seccomp once more, as agents do
	Script  string
}

func (s secondTask) become() error {
	runtime.LockOSThread()
	fds, err := unix.Open("/proc/thread-self/fd", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if !s.Free {
		layers := Layers{BPF: s.WithBPF, Landlock: true, Seccomp: hasSeccomp()}
		second, err := prepareSecond(setup{Layers: layers, Rules: s.Rules, User: User{UID: 1},
			Network: policy.NetworkHost, FDs: fds})
		if err != nil {
			return err
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
		if err := enforce(second); err != nil {
			return err
		}
	}
	if s.Nested {
		rules, err := landlockRules(s.Rules, handledBy(min(LandlockABI(), 2)), false, netHost, fds)
		if err != nil {
			return err
		}
		err = enforce(secondLayer{ruleset: rules, seccomp: true, withBPF: true})
		if err != nil {
			return fmt.Errorf("once more: %w", err)
		}
	}
	return syscall.Exec("/bin/sh", []string{"sh", "-ec", s.Script}, os.Environ())
}

// enforce puts layers over this thread, as the command's process does.
func enforce(layers secondLayer) error {
	var s script
	fd := uintptr(0)
	if layers.ruleset != nil {
		fd = uintptr(layers.ruleset.fd)
	}
	if err := layers.lay(&s, fd); err != nil {
		return err
	}
	step, errno := perform(s.calls)
	runtime.KeepAlive(&s)
	if step < len(s.calls) {
		return s.explain(report{int32(step), int32(errno)}, "")
	}
	return nil
}

func TestMain(m *testing.M) {
	if task := os.Getenv(secondVariable); task != "" {
		os.Unsetenv(secondVariable)
		var s secondTask
		err := json.Unmarshal([]byte(task), &s)
		if err == nil {
			err = s.become()
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	os.Exit(m.Run())
}

// place is a project, and a directory outside of it, that no rule of the default
// policy covers: /tmp is the jail's own.
type place struct{ project, outside string }

func newPlace(t *testing.T) place {
	t.Helper()
	if LandlockABI() == 0 {
		t.Skip("the kernel has no Landlock")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp(home, "agent-lock-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if root, err = filepath.EvalSymlinks(root); err != nil {
		t.Fatal(err)
	}
	p := place{filepath.Join(root, "proj"), filepath.Join(root, "outside")}
	for _, dir := range []string{p.project, p.outside} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(p.outside, "secret")
	if err := os.WriteFile(secret, []byte("secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p place) policy() *policy.Policy {
	return policy.Default(p.project, filepath.Join(p.outside, "home"))
}

func (p place) command(t *testing.T, task secondTask) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = p.project
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + p.project, "LANG=C.UTF-8",
		"OUT=" + p.outside, secondVariable + "=" + string(text)}
	return cmd
}

// toolScripts are what works under the BPF layer and so has to under the others.
var toolScripts = []struct{ name, needs, script string }{
	{"git", "git", `git init -q repo && cd repo && git config user.email a@b.c &&
		git config user.name n && echo x >f && git add f && git commit -qm m &&
		git status --short && git gc -q && git clone -q . ../clone && git mv f g`},
	{"renames", "mv", `mkdir a b && echo x >a/f && mv a/f b/f && mv b c && ln c/f a/g &&
		mv a/g c/ && mv c a/ && test -f a/c/g`},
	{"install", "mv", `mkdir -p m/.tmp-x/lib && echo 1 >m/.tmp-x/lib/i && mv m/.tmp-x m/x &&
		ln -s ../x m/.bin && cp -a m/x m/y && rm -r m/x && chmod 700 m/y`},
	{"replace", "mv", `echo 1 >f && echo 2 >f.tmp && mv f.tmp f && test $(cat f) = 2`},
	{"truncate", "truncate", `echo abc >f && truncate -s 1 f && : >f && test ! -s f`},
	{"devices", "head", `echo x >/dev/null && head -c 4 /dev/urandom >/dev/null &&
		head -c 4 </dev/zero | wc -c`},
	{"fifo", "mkfifo", `mkfifo f && { echo x >f & } && cat f && wait`},
	{"signals", "sleep", `sleep 100 & kill $! && wait $! || test $? = 143`},
	{"terminal", "script", `script -qec 'echo x >/dev/tty && stty rows 7 </dev/tty &&
		stty size </dev/tty' /dev/null`},
	{"job_control", "script", `script -qec 'bash -ic "sleep 0.1 & fg %%"' /dev/null </dev/null`},
	{"proc", "cat", `cat /proc/self/status >/dev/null && ls /proc/self/fd >/dev/null &&
		echo 500 >/proc/self/oom_score_adj`},
	{"descriptors", "cat", `exec 5>f && echo x >&5 && cat /proc/self/fd/5 f >/dev/null &&
		echo y | cat /dev/stdin`},
	{"python", "/usr/bin/python3", `/usr/bin/python3 -c '
import mmap, os, socket, subprocess, tempfile, threading
mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
open("f", "wb").write(b"x" * 4096)
with open("f", "r+b") as f: mmap.mmap(f.fileno(), 0)[0:1] = b"y"
with tempfile.TemporaryFile(dir=".") as f: f.write(b"x"); f.truncate(0)
s = socket.socket(socket.AF_UNIX); s.bind("s"); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect("s"); s.accept()
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
socket.create_connection(s.getsockname())
t = threading.Thread(target=lambda: None); t.start(); t.join()
assert subprocess.run(["true"]).returncode == 0
if os.fork() == 0: os._exit(0)
os.wait()
fd = os.memfd_create("m"); os.write(fd, open("/bin/true", "rb").read())
assert subprocess.run(["/proc/self/fd/%d" % fd], pass_fds=[fd]).returncode == 0
'`},
}

func TestToolsWork(t *testing.T) {
	for _, tool := range toolScripts {
		t.Run(tool.name, func(t *testing.T) {
			if _, err := exec.LookPath(tool.needs); err != nil {
				t.Skipf("no %s here", tool.needs)
			}
			for _, how := range []struct {
				name string
				task secondTask
			}{
				{"control", secondTask{Free: true}},
				{"with_bpf", secondTask{WithBPF: true}},
				{"alone", secondTask{}},
				{"nested", secondTask{Nested: true}},
			} {
				p := newPlace(t)
				how.task.Rules, how.task.Script = p.policy().Rules, tool.script
				out, err := p.command(t, how.task).CombinedOutput()
				if err != nil && how.task.Free {
					t.Skipf("it does not work without the layers either: %v: %s", err, out)
				}
				if err != nil {
					t.Errorf("%s: %v: %s", how.name, err, out)
				}
			}
		})
	}
}

// outsideScripts are refused by Landlock's files and the filter.
var outsideScripts = map[string]string{
	"read":    `cat $OUT/secret`,
	"list":    `ls $OUT`,
	"write":   `echo x >>$OUT/secret`,
	"create":  `echo x >$OUT/new`,
	"remove":  `rm -f $OUT/secret`,
	"move_in": `mv $OUT/secret here`,
	"link_in": `ln $OUT/secret here`,
	"run":     `cp /bin/true $OUT/true && $OUT/true`,
	"userns":  `unshare -U true`,
}

func TestOutsideIsRefused(t *testing.T) {
	for name, script := range outsideScripts {
		t.Run(name, func(t *testing.T) {
			for _, free := range []bool{true, false} {
				p := newPlace(t)
				out, err := p.command(t, secondTask{
					Rules: p.policy().Rules, Free: free, Script: script}).CombinedOutput()
				if free && err != nil {
					t.Skipf("it does not work without the layers either: %v: %s", err, out)
				}
				if !free && err == nil {
					t.Errorf("%s worked: %s", script, out)
				}
			}
		})
	}
}

// A rule on a file: beside the BPF layer it has to survive that the file is replaced;
// alone, Landlock gives that file and nothing else.
func TestReplacedFile(t *testing.T) {
	for _, tt := range []struct {
		withBPF bool
		want    string
	}{{true, "new\n"}, {false, ""}} {
		p := newPlace(t)
		pol := p.policy()
		file := filepath.Join(p.outside, "secret")
		if err := pol.Allow(file, policy.Read, "--ro", "/nowhere"); err != nil {
			t.Fatal(err)
		}
		cmd := p.command(t, secondTask{Rules: pol.Rules, WithBPF: tt.withBPF,
			Script: `cat $OUT/secret; read go; cat $OUT/secret`})
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		if first, err := lines.ReadString('\n'); first != "secret\n" {
			t.Errorf("before: got %q, %v, want the file: %s", first, err, &stderr)
		}
		if err := os.WriteFile(file+"2", []byte("new\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+"2", file); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(in, "go")
		got, err := io.ReadAll(lines)
		if err != nil || string(got) != tt.want {
			t.Errorf("with BPF %v, after: got %q, %v, want %q", tt.withBPF, got, err, tt.want)
		}
		cmd.Wait()
	}
}

func TestLandlockRights(t *testing.T) {
	all := uint64(handledBy(1 << 20).HandledAccessFS)
	if all != uint64(landlock.V11.HandledAccessFS) {
		t.Errorf("a later Landlock handles %#x, want what the library knows", all)
	}
	full := landlockRights(policy.Read | policy.Write | policy.Execute | policy.Connect)
	const devices = 1<<6 | 1<<11 // making character and block devices
	if full != all&^devices {
		t.Errorf("all rights = %#x, want all of %#x but devices", full, all)
	}
	if got := landlockRights(0); got != 0 {
		t.Errorf("no rights = %#x, want 0", got)
	}
}

func TestParseLayers(t *testing.T) {
	for list, want := range map[string]string{
		"all": "bpf,landlock,seccomp,view", "bpf": "bpf", "seccomp,landlock": "landlock,seccomp",
		"view,seccomp": "seccomp,view", "view": "view",
		"seccomp": "", "": "bpf,seccomp", "bpf,": "", "everything": "",
	} {
		got, err := ParseLayers(list)
		if (err != nil) != (want == "") || err == nil && got.String() != want {
			t.Errorf("ParseLayers(%q) = %s, %v, want %q", list, got, err, want)
		}
	}
}

func TestSettle(t *testing.T) {
	full := kernelLayers{lsms: []string{"landlock", "bpf"}, landlock: 6, seccomp: true}
	bare := kernelLayers{lsms: []string{"bpf"}}
	noBPF := kernelLayers{lsms: []string{"landlock"}, landlock: 6, seccomp: true}
	for _, tt := range []struct {
		layers string
		kernel kernelLayers
		want   string
		says   string // of the error
	}{
		{"all", full, "bpf,landlock,seccomp,view", ""},
		{"all", bare, "bpf,view", ""},
		{"bpf", kernelLayers{}, "", "--layers view runs"},
		{"bpf,landlock", bare, "", "no Landlock"},
		{"bpf,seccomp", bare, "", "no seccomp"},
		{"all", noBPF, "", "--layers landlock,seccomp"},
		{"bpf", noBPF, "", "lsm=landlock,bpf"},
		{"landlock,seccomp", noBPF, "landlock,seccomp", ""},
	} {
		l, err := ParseLayers(tt.layers)
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.settle(tt.kernel)
		if tt.says != "" {
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s on %v: error %v, want one with %q", tt.layers, tt.kernel, err, tt.says)
			}
		} else if err != nil || got.String() != tt.want {
			t.Errorf("%s on %v = %s, %v, want %s", tt.layers, tt.kernel, got, err, tt.want)
		}
	}
	if !full.landlockFirst() || bare.landlockFirst() {
		t.Error("landlockFirst is wrong about who is asked first")
	}
}

func TestRefusesWithout(t *testing.T) {
	p := policy.Default("/home/u/p", "/home/u")
	if err := refusesWithout(p); err != nil {
		t.Errorf("the default policy: %v", err)
	}
	p.Hardlinks = policy.HardlinksDeny
	if err := refusesWithout(p); err == nil {
		t.Error("--hardlinks deny was accepted")
	}
}

func TestRefusesInView(t *testing.T) {
	dir := t.TempDir()
	p := policy.Default(dir, "/home/u")
	if err := refusesInView(p); err != nil {
		t.Errorf("the default policy: %v", err)
	}
	for path, missing := range map[string]bool{
		filepath.Join(dir, "there"): false, filepath.Join(dir, "missing"): true,
		filepath.Join(dir, "there*"): true,
	} {
		if err := os.WriteFile(filepath.Join(dir, "there"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p := policy.Default(dir, "/home/u")
		if err := p.Allow(path, policy.Read|policy.Write, "--rw", "/home/u"); err != nil {
			t.Fatal(err)
		}
		if err := refusesInView(p); (err != nil) != missing {
			t.Errorf("--rw %s: %v, want an error: %v", path, err, missing)
		}
	}
}
