package adversary

import (
	"os"

	"golang.org/x/sys/unix"
)

const watchSource = "D33"

// watching: being told what happens outside. The runner makes a file with a
// secret name once the watch is set.
var watching = []Case{
	{
		Name: "watch_inotify", Family: "watching", Source: watchSource,
		What: "watches an outside directory with inotify", Hooks: []string{"path_notify"},
		Calls: "inotify_init1, inotify_add_watch", Needs: "CONFIG_INOTIFY_USER",
		Attack: attackInotify, Meanwhile: dropSecretName, Judge: tokenRead,
	},
	{
		Name: "watch_fanotify", Family: "watching", Source: watchSource,
		What: "watches an outside directory with fanotify", Hooks: []string{"path_notify"},
		Calls: "fanotify_init, fanotify_mark", Needs: "CONFIG_FANOTIFY", Since: "5.13",
		Attack: attackFanotify, Meanwhile: dropSecretName, Judge: tokenRead,
	},
}

func dropSecretName(s *Scene, _ int) error {
	return os.WriteFile(s.Out(s.Token), nil, 0o600)
}

func attackInotify(t *Target) ([]byte, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, call("inotify_init1", err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, t.Outside, unix.IN_CREATE); err != nil {
		return nil, call("inotify_add_watch", err)
	}
	return watched(t, fd)
}

func attackFanotify(t *Target) ([]byte, error) {
	// Reporting directory and name is open to everybody since 5.13.
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|
		unix.FAN_REPORT_DFID_NAME, unix.O_RDONLY)
	if err != nil {
		return nil, call("fanotify_init", err)
	}
	defer unix.Close(fd)
	err = unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_CREATE, unix.AT_FDCWD, t.Outside)
	if err != nil {
		return nil, call("fanotify_mark", err)
	}
	return watched(t, fd)
}

// watched lets the runner act and returns the events as they come, names in them.
func watched(t *Target, fd int) ([]byte, error) {
	if err := t.Sync(); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	return buf[:max(n, 0)], call("read events", err)
}
