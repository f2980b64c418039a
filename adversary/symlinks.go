package adversary

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const symlinkSource = "D03 CVE-2026-25724 CVE-2026-39861"

// symlinks: names in the project that lead outside.
var symlinks = []Case{
	{
		Name: "symlink_existing_file", Family: "symlinks", Source: symlinkSource,
		What: "reads through a link that was in the project before", Hooks: opens,
		Calls:  "openat",
		Setup:  func(s *Scene) error { return os.Symlink(s.Target.Secret, s.In("l")) },
		Attack: func(t *Target) ([]byte, error) { return read(t.in("l")) },
		Judge:  tokenRead,
	},
	{
		Name: "symlink_existing_dir", Family: "symlinks", Source: symlinkSource,
		What: "reads through a link to a directory that was there before", Hooks: opens,
		Calls:  "openat",
		Setup:  func(s *Scene) error { return os.Symlink(s.Target.Outside, s.In("d")) },
		Attack: func(t *Target) ([]byte, error) { return read(t.in("d/secret")) },
		Judge:  tokenRead,
	},
	{
		Name: "symlink_created_file", Family: "symlinks", Source: symlinkSource,
		What: "makes a link to an outside file and reads through it", Hooks: opens,
		Calls: "symlinkat, openat",
		Attack: func(t *Target) ([]byte, error) {
			return read(t.linkTo(t.Secret))
		},
		Judge: tokenRead,
	},
	{
		Name: "symlink_created_dir", Family: "symlinks", Source: symlinkSource,
		What: "makes a link to an outside directory and reads a file in it", Hooks: opens,
		Calls: "symlinkat, openat",
		Attack: func(t *Target) ([]byte, error) {
			return read(t.linkTo(t.Outside) + "/secret")
		},
		Judge: tokenRead,
	},
	{
		Name: "symlink_relative", Family: "symlinks", Source: symlinkSource,
		What: "reads through a relative link", Hooks: opens,
		Calls: "symlinkat, openat",
		Setup: func(s *Scene) error {
			s.Arg("rel", "../../outside/"+s.attempt)
			return nil
		},
		Attack: func(t *Target) ([]byte, error) {
			return read(t.linkTo(t.Args["rel"]) + "/secret")
		},
		Judge: tokenRead,
	},
	{
		Name: "symlink_chain", Family: "symlinks", Source: symlinkSource,
		What: "reads through a link to a link, thirty times", Hooks: opens,
		Calls: "symlinkat, openat",
		Attack: func(t *Target) ([]byte, error) {
			to := t.Secret
			for i := range 30 {
				next := t.in(fmt.Sprintf("l%d", i))
				if err := os.Symlink(to, next); err != nil {
					return nil, err
				}
				to = next
			}
			return read(to)
		},
		Judge: tokenRead,
	},
	{
		Name: "symlink_race", Family: "symlinks", Source: "D13 cadis#1196",
		What: "opens a name that another thread swaps for a link to the outside", Hooks: opens,
		Calls: "symlinkat, renameat2(RENAME_EXCHANGE), openat", Needs: needsExchange,
		Attack: attackRace, Judge: tokenRead,
	},
	{
		Name: "symlink_write", Family: "symlinks", Source: symlinkSource,
		What: "writes to an outside file through a link", Hooks: opens,
		Calls: "symlinkat, openat, write",
		Attack: func(t *Target) ([]byte, error) {
			return nil, scribble(t.linkTo(t.Secret), 0)
		},
		Judge: changed,
	},
	{
		Name: "symlink_dangling_create", Family: "symlinks", Source: symlinkSource,
		What:  "creates an outside file through a link to a name that is not there yet",
		Calls: "symlinkat, openat(O_CREAT), write",
		Hooks: []string{"file_open", "path_mknod"},
		Attack: func(t *Target) ([]byte, error) {
			return nil, scribble(t.linkTo(t.out("new")), unix.O_CREAT)
		},
		Judge: changed,
	},
	{
		Name: "symlink_dir_create", Family: "symlinks", Source: symlinkSource,
		What:  "creates an outside file through a link to its directory",
		Calls: "symlinkat, openat(O_CREAT), write",
		Hooks: []string{"file_open", "path_mknod"},
		Attack: func(t *Target) ([]byte, error) {
			return nil, scribble(t.linkTo(t.Outside)+"/new", unix.O_CREAT|unix.O_EXCL)
		},
		Judge: changed,
	},
	{
		Name: "symlink_dir_unlink", Family: "symlinks", Source: symlinkSource,
		What:  "deletes an outside file through a link to its directory",
		Calls: "symlinkat, unlinkat",
		Hooks: []string{"path_unlink"},
		Attack: func(t *Target) ([]byte, error) {
			return nil, call("unlink", unix.Unlink(t.linkTo(t.Outside)+"/secret"))
		},
		Judge: changed,
	},
	{
		Name: "symlink_proc_self_fd", Family: "symlinks", Source: "D19",
		What: "opens the file O_PATH and reads it through /proc/self/fd", Hooks: opens,
		Calls: "openat(O_PATH), openat",
		Attack: func(t *Target) ([]byte, error) {
			fd, err := openPath(t.Secret)
			if err != nil {
				return nil, err
			}
			return read(fmt.Sprintf("/proc/self/fd/%d", fd))
		},
		Judge: tokenRead,
	},
	{
		Name: "symlink_proc_self_fd_dir", Family: "symlinks", Source: "D19",
		What: "opens the directory O_PATH and reads below /proc/self/fd", Hooks: opens,
		Calls: "openat(O_PATH), openat",
		Attack: func(t *Target) ([]byte, error) {
			fd, err := openPath(t.Outside)
			if err != nil {
				return nil, err
			}
			return read(fmt.Sprintf("/proc/self/fd/%d/secret", fd))
		},
		Judge: tokenRead,
	},
	{
		Name: "symlink_proc_self_fd_write", Family: "symlinks", Source: "D19",
		What: "opens the file O_PATH and writes it through /proc/self/fd", Hooks: opens,
		Calls: "openat(O_PATH), openat, write",
		Attack: func(t *Target) ([]byte, error) {
			fd, err := openPath(t.Secret)
			if err != nil {
				return nil, err
			}
			return nil, scribble(fmt.Sprintf("/proc/self/fd/%d", fd), 0)
		},
		Judge: changed,
	},
}

// attackRace looks for the moment between a check of a name and its use. It ends
// when it has read something else than its own file, or was refused often enough.
func attackRace(t *Target) ([]byte, error) {
	own, err := t.own("ok")
	if err != nil {
		return nil, err
	}
	link := t.linkTo(t.Secret)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, own, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
				runtime.Gosched() // there may be one processor only
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	var last error
	refused := 0
	for start := time.Now(); refused < 100 && time.Since(start) < 3*time.Second; {
		data, err := read(own)
		if err != nil {
			last = err
			refused++
		} else if string(data) != mark {
			return data, nil
		}
		runtime.Gosched()
	}
	return nil, last
}

// linkTo makes a link in the project. If it cannot, the use of its name will tell.
func (t *Target) linkTo(target string) string {
	path := t.in("link")
	if err := os.Symlink(target, path); err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
	}
	return path
}
