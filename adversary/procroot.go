package adversary

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// procroot: the links to directories that procfs has for each process.
var procroot = []Case{
	{
		Name: "procroot_self_root", Family: "procroot", Source: "D04",
		What: "reads below /proc/self/root", Hooks: opens,
		Calls:  "openat",
		Attack: func(t *Target) ([]byte, error) { return read("/proc/self/root" + t.Secret) },
		Judge:  tokenRead,
	},
	{
		Name: "procroot_self_cwd", Family: "procroot", Source: "D04",
		What: "reads by .. from /proc/self/cwd", Hooks: opens,
		Calls: "chdir, openat",
		Attack: func(t *Target) ([]byte, error) {
			path, err := t.viaCwd("secret")
			if err != nil {
				return nil, err
			}
			return read(path)
		},
		Judge: tokenRead,
	},
	{
		Name: "procroot_thread_self_root", Family: "procroot", Source: "D04",
		What: "reads below /proc/thread-self/root", Hooks: opens,
		Calls: "openat",
		Attack: func(t *Target) ([]byte, error) {
			return read("/proc/thread-self/root" + t.Secret)
		},
		Judge: tokenRead,
	},
	{
		Name: "procroot_task_root", Family: "procroot", Source: "D04",
		What: "reads below /proc/self/task/TID/root", Hooks: opens,
		Calls: "openat",
		Attack: func(t *Target) ([]byte, error) {
			return read(fmt.Sprintf("/proc/self/task/%d/root%s", unix.Gettid(), t.Secret))
		},
		Judge: tokenRead,
	},
	{
		Name: "procroot_pid1_root", Family: "procroot", Source: "D23 sandlock#11",
		What: "reads below /proc/1/root", Hooks: []string{"file_open", "ptrace_access_check"},
		Calls: "openat", Needs: "root, or a pid 1 of the same user",
		Attack: func(t *Target) ([]byte, error) { return read("/proc/1/root" + t.Secret) },
		Judge:  tokenRead,
	},
	{
		Name: "procroot_parent_root", Family: "procroot", Source: "D23 sandlock#11",
		What:  "reads below the root of the parent process",
		Calls: "openat",
		Hooks: []string{"file_open", "ptrace_access_check"},
		Attack: func(t *Target) ([]byte, error) {
			return read(fmt.Sprintf("/proc/%d/root%s", os.Getppid(), t.Secret))
		},
		Judge: tokenRead,
	},
	{
		Name: "procroot_other_root", Family: "procroot", Source: "D23 sandlock#11",
		What:  "reads below the root of a process outside",
		Calls: "openat",
		Hooks: []string{"file_open", "ptrace_access_check"},
		Setup: (*Scene).Victim,
		Attack: func(t *Target) ([]byte, error) {
			return read(fmt.Sprintf("/proc/%d/root%s", t.PID, t.Secret))
		},
		Judge: tokenRead,
	},
	{
		Name: "procroot_other_cwd", Family: "procroot", Source: "D23 sandlock#11",
		What:  "reads below the working directory of a process outside",
		Calls: "openat",
		Hooks: []string{"file_open", "ptrace_access_check"},
		Setup: (*Scene).Victim,
		Attack: func(t *Target) ([]byte, error) {
			dir := filepath.Base(t.Outside)
			return read(fmt.Sprintf("/proc/%d/cwd/%s/secret", t.PID, dir))
		},
		Judge: tokenRead,
	},
	{
		Name: "procroot_other_fd", Family: "procroot", Source: "D23 sandlock#11",
		What:  "reads a file that a process outside has open",
		Calls: "openat",
		Hooks: []string{"file_open", "ptrace_access_check"},
		Setup: (*Scene).Victim,
		Attack: func(t *Target) ([]byte, error) {
			return read(fmt.Sprintf("/proc/%d/fd/%s", t.PID, t.Args["fd"]))
		},
		Judge: victimRead,
	},
	{
		Name: "procroot_self_root_write", Family: "procroot", Source: "D04",
		What: "creates a file below /proc/self/root", Hooks: []string{"file_open", "path_mknod"},
		Calls: "openat(O_CREAT), write",
		Attack: func(t *Target) ([]byte, error) {
			return nil, scribble("/proc/self/root"+t.out("new"), unix.O_CREAT)
		},
		Judge: changed,
	},
	{
		Name: "procroot_self_cwd_write", Family: "procroot", Source: "D04",
		What: "overwrites a file by .. from /proc/self/cwd", Hooks: opens,
		Calls: "chdir, openat, write",
		Attack: func(t *Target) ([]byte, error) {
			path, err := t.viaCwd("secret")
			if err != nil {
				return nil, err
			}
			return nil, scribble(path, 0)
		},
		Judge: changed,
	},
	{
		Name: "procroot_thread_self_unlink", Family: "procroot", Source: "D04",
		What: "deletes a file below /proc/thread-self/root", Hooks: []string{"path_unlink"},
		Calls: "unlinkat",
		Attack: func(t *Target) ([]byte, error) {
			return nil, call("unlink", unix.Unlink("/proc/thread-self/root"+t.Secret))
		},
		Judge: changed,
	},
}

// viaCwd goes to the project and names an outside file through /proc/self/cwd.
func (t *Target) viaCwd(name string) (string, error) {
	if err := os.Chdir(t.Work); err != nil {
		return "", need(err)
	}
	rel, err := filepath.Rel(t.Work, t.out(name))
	return "/proc/self/cwd/" + rel, need(err)
}
