package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/agent-lock/agent-lock/policy"
	"golang.org/x/sys/unix"
)

// Init is pid 1 of the jail. It gives the namespaces their own file systems,
// prepares the command, waits until the jail is armed, and is the command's
// parent until it ends. It never returns to a caller that goes on.
func Init() int {
	control := inherited()
	task, err := prepare(control)
	if err != nil {
		control.fail(err)
		return 1
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	if err := task.release(control); err != nil {
		control.fail(err)
		return 1
	}
	control.Close()
	go func() {
		for sig := range signals {
			// The terminal has sent these to the command as well.
			if sig != unix.SIGINT && sig != unix.SIGQUIT {
				task.cmd.Process.Signal(sig)
			}
		}
	}()
	return reap(task.cmd.Process.Pid)
}

// task is the command that waits to be let go.
type task struct {
	cmd     *exec.Cmd
	control *control
}

func prepare(control *control) (*task, error) {
	s, err := control.receive()
	if err != nil {
		return nil, fmt.Errorf("read the jail's task: %w", err)
	}
	if err := makeMounts(s); err != nil {
		return nil, err
	}
	if exists("/proc/self/ns/uts") { // else the name is the host's
		if err := unix.Sethostname([]byte("jail")); err != nil {
			return nil, fmt.Errorf("set host name: %w", err)
		}
	}
	if s.Apart {
		if err := raiseLoopback(); err != nil {
			return nil, err
		}
	}
	fmt.Fprintln(control, "mounted")
	return startExec(s)
}

// startExec starts the process that becomes the command, and waits until it
// has dropped its privileges.
func startExec(s setup) (*task, error) {
	ours, theirs, err := controlPair()
	if err != nil {
		return nil, err
	}
	cmd := again(ExecVerb, theirs.File)
	err = cmd.Start()
	theirs.Close() // so that the process's death is the end of what ours reads
	if err != nil {
		return nil, fmt.Errorf("start the command's process: %w", err)
	}
	if err := ours.send(s); err != nil {
		return nil, fmt.Errorf("tell the command's process its task: %w", err)
	}
	line, err := ours.readLine()
	if err != nil {
		return nil, fmt.Errorf("wait for the command's process: %w", err)
	}
	if line != "ready" {
		return nil, errors.New(line)
	}
	return &task{cmd: cmd, control: ours}, nil
}

// release waits for the supervisor's word and passes it on. The command's
// process closes its end by executing the command, or says what is wrong.
func (t *task) release(control *control) error {
	fmt.Fprintln(control, "ready")
	word, err := control.readLine()
	if err != nil || word != "armed" {
		return fmt.Errorf("wait to be armed: got %q: %w", word, err)
	}
	fmt.Fprintln(t.control, "armed")
	failure, err := io.ReadAll(t.control.in)
	t.control.Close()
	if err != nil {
		return fmt.Errorf("wait for the command to start: %w", err)
	}
	if len(failure) > 0 {
		return errors.New(strings.TrimSpace(string(failure)))
	}
	return nil
}

// reap waits for every child, as pid 1 must, and returns the exit status of
// one of them. What is left when it ends is killed by the kernel with pid 1.
func reap(pid int) int {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1
		case got == pid && ws.Signaled():
			return 128 + int(ws.Signal())
		case got == pid && ws.Exited():
			return ws.ExitStatus()
		}
	}
}

// makeMounts gives the jail its own /proc, terminals and private directories.
func makeMounts(s setup) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	files, err := openKept(s.Keep)
	if err != nil {
		return err
	}
	var view writable
	if !s.Layers.BPF && !slices.Contains(s.Drop, DropMounts) {
		if view, err = readOnlyBut(s.Rules); err != nil {
			return err
		}
	}
	const nothing = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", nothing, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	ptys := "newinstance,ptmxmode=0666,mode=0620"
	err = unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, ptys)
	// Where there are none, there are none of the host's either.
	if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	if err := coverCgroups(); err != nil {
		return err
	}
	for _, dir := range policy.Private {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
		if err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	runtimeDir := s.User.runtimeDir()
	if err := os.Mkdir(runtimeDir, 0o700); err == nil {
		if err := os.Chown(runtimeDir, s.User.UID, s.User.GID); err != nil {
			return fmt.Errorf("make %s: %w", runtimeDir, err)
		}
	}
	if err := bindKept(files); err != nil || s.Layers.BPF {
		return err
	}
	if err := view.put(); err != nil {
		return err
	}
	return maskRules(s.Rules)
}

// kept is a path that a private directory would cover.
type kept struct {
	Path   string
	Direct bool // as in policy.Rule
}

// keep returns the rules' paths that a private directory would cover.
func keep(p *policy.Policy) []kept {
	var paths []kept
	for _, r := range p.Rules {
		for _, dir := range policy.Private {
			if strings.HasPrefix(r.Path, dir+"/") {
				if _, err := os.Lstat(r.Path); err == nil {
					paths = append(paths, kept{r.Path, r.Direct})
				}
			}
		}
	}
	return paths
}

func openKept(paths []kept) (map[string]*os.File, error) {
	files := map[string]*os.File{}
	for _, k := range paths {
		how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
		if k.Direct {
			how.Resolve = unix.RESOLVE_NO_SYMLINKS
		}
		fd, err := unix.Openat2(unix.AT_FDCWD, k.Path, how)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", k.Path, err)
		}
		files[k.Path] = os.NewFile(uintptr(fd), k.Path)
	}
	return files, nil
}

// bindKept binds what was opened before the private directories covered it.
func bindKept(files map[string]*os.File) error {
	for path, f := range files {
		defer f.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return fmt.Errorf("look at %s: %w", path, err)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("keep %s: %w", path, err)
		}
		var err error
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = os.WriteFile(path, nil, 0o644)
		}
		if err != nil {
			return fmt.Errorf("keep %s: %w", path, err)
		}
		source := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
		if err := unix.Mount(source, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("keep %s: %w", path, err)
		}
	}
	return nil
}
