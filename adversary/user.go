package adversary

import (
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A User is the person whose files are at stake: the canaries, the project and
// the processes outside belong to them.
type User struct {
	UID, GID int
	Name     string // for USER and LOGNAME
	Home     string // the arena is made here unless Options say otherwise
}

// InvokingUser returns who called us: the user that sudo was called by, or else
// the user that this process runs as.
func InvokingUser() (User, error) {
	u := User{UID: os.Getuid(), GID: os.Getgid(), Home: os.Getenv("HOME"), Name: os.Getenv("USER")}
	if u.UID != 0 || os.Getenv("SUDO_UID") == "" {
		if u.Home == "" {
			return u, fmt.Errorf("find home directory of uid %d: HOME is not set", u.UID)
		}
		return u, nil
	}
	id := os.Getenv("SUDO_UID")
	uid, err := strconv.Atoi(id)
	if err != nil {
		return u, fmt.Errorf("read SUDO_UID: %w", err)
	}
	gid, err := strconv.Atoi(os.Getenv("SUDO_GID"))
	if err != nil {
		return u, fmt.Errorf("read SUDO_GID: %w", err)
	}
	entry, err := user.LookupId(id)
	if err != nil {
		return u, fmt.Errorf("find home directory of SUDO_UID %s: %w", id, err)
	}
	return User{UID: uid, GID: gid, Name: entry.Username, Home: entry.HomeDir}, nil
}

// Named returns the user with a name.
func Named(name string) (User, error) {
	entry, err := user.Lookup(name)
	if err != nil {
		return User{}, err
	}
	u := User{Name: entry.Username, Home: entry.HomeDir}
	if u.UID, err = strconv.Atoi(entry.Uid); err != nil {
		return u, fmt.Errorf("read uid of %s: %w", name, err)
	}
	if u.GID, err = strconv.Atoi(entry.Gid); err != nil {
		return u, fmt.Errorf("read gid of %s: %w", name, err)
	}
	return u, nil
}

// cannot says why the user cannot make an attack here, or "".
func (u User) cannot(c Case) string {
	if c.Root && u.UID != 0 {
		return "only root can make this attack (--user root)"
	}
	if name, err := os.Hostname(); c.Guest && (err != nil || name != "guest") {
		return "it changes the whole machine, so it is made in a guest of vmtest only"
	}
	return ""
}

// foreign reports whether this process acts for another user, which only root can.
func (u User) foreign() bool { return os.Geteuid() == 0 && u.UID != 0 }

// do runs f with the file system identity of the user, so that what f creates
// belongs to the user and f can reach no more than the user can. The identity
// is that of one thread; f must not change the thread otherwise, nor hand file work to
// other goroutines.
func (u User) do(f func() error) error {
	if !u.foreign() {
		return f()
	}
	t, err := userThreads.take(u)
	if err != nil {
		return err
	}
	defer userThreads.put(u, t)
	t.work <- f
	return <-t.done
}

// A userThread has the file system identity of a user. Making one takes longer than most
// of what they do, so they stay, as many as were at work at a time.
type userThread struct {
	work chan func() error
	done chan error
}

// userThreads are those without work.
var userThreads = threadPool{idle: map[User][]userThread{}}

type threadPool struct {
	sync.Mutex
	idle map[User][]userThread
}

func (p *threadPool) take(u User) (userThread, error) {
	p.Lock()
	defer p.Unlock()
	if idle := p.idle[u]; len(idle) > 0 {
		last := len(idle) - 1
		p.idle[u] = idle[:last]
		return idle[last], nil
	}
	t := userThread{work: make(chan func() error), done: make(chan error)}
	go t.serve(u)
	return t, <-t.done
}

func (p *threadPool) put(u User, t userThread) {
	p.Lock()
	defer p.Unlock()
	p.idle[u] = append(p.idle[u], t)
}

// serve is what the thread does. It reports first whether it has become the user.
func (t userThread) serve(u User) {
	runtime.LockOSThread() // not unlocked: the thread is of no use to others
	err := u.assume()
	t.done <- err
	for err == nil {
		f := <-t.work
		t.done <- f()
	}
}

// assume sets the file system ids of the calling thread. The kernel drops the
// file capabilities with them.
func (u User) assume() error {
	_, _ = unix.SetfsgidRetGid(u.GID)
	_, _ = unix.SetfsuidRetUid(u.UID)
	// setfsuid(2) reports no error: asking again tells what is in force.
	if now, _ := unix.SetfsuidRetUid(u.UID); now != u.UID {
		return fmt.Errorf("act as uid %d: file system uid is %d", u.UID, now)
	}
	return nil
}

// credential is what a child process of the runner starts with; nil: no change.
func (u User) credential() *syscall.Credential {
	if !u.foreign() {
		return nil
	}
	return &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
}

// environment is a plain environment of the user.
func (u User) environment() []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
	}
	return []string{"PATH=" + path, "HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name,
		"TERM=dumb"}
}
