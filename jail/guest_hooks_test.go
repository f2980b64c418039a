//go:build guest

package jail_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The tests of this file show hooks for which no attack is a witness: what they refuse
// leaves nothing that can be judged from outside, or they only keep the books of what is
// the jail's own. guest-mutate runs each again without its hook: it must fail then.

// probeSays runs a probe in a jail and outside, where it must print "ok".
func probeSays(t *testing.T, want string, probe ...string) {
	t.Helper()
	dir := project(t)
	flags := []string{"--denials", "off", "--layers", "bpf"} // seccomp refuses some of it too
	out, stderr, _ := run(t, jailed(dir, flags, probe...))
	if out != want+"\n" {
		t.Errorf("in the jail %q: %s, want %s; stderr: %s", probe, out, want, stderr)
	}
	out, stderr, _ = run(t, exec.Command(filepath.Join(dir, "probe"), probe...))
	if out != "ok\n" {
		t.Errorf("outside %q: %s, want ok; stderr: %s", probe, out, stderr)
	}
}

func TestFreeSpace(t *testing.T)      { probeSays(t, "ENOENT", "statfs", secret(t)) }
func TestQuotas(t *testing.T)         { probeSays(t, "EPERM", "quotactl") }
func TestOwnSocket(t *testing.T)      { probeSays(t, "ok", "own-socket") }
func TestAcceptedSocket(t *testing.T) { probeSays(t, "ok", "accepted-socket") }
func TestOwnKey(t *testing.T)         { probeSays(t, "ok", "own-key") }

// Nothing of a jail stays in the maps when no supervisor is left to tidy them up.
func TestBooksAreClosed(t *testing.T) {
	for _, tt := range []struct {
		name, entries string
		probe         []string
	}{
		{"processes", "inits", []string{"sleep"}},
		{"sockets", "own_sockets", []string{"serve", "127.0.0.1:47300"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, before := project(t), inMaps(t, tt.entries)
			cmd := jailed(dir, []string{"--denials", "off"}, tt.probe...)
			start(t, cmd)
			if n := inMaps(t, tt.entries); n <= before {
				t.Errorf("%s: %d with the jail, %d before", tt.entries, n, before)
			}
			cmd.Process.Kill()
			cmd.Wait()
			eventually(t, "nothing of the jail is in "+tt.entries, func() bool {
				return inMaps(t, tt.entries) <= before
			})
		})
	}
}

// inMaps counts the entries of a map of every attach set.
func inMaps(t *testing.T, name string) int {
	t.Helper()
	sets := attachSets(t)
	if len(sets) == 0 {
		t.Fatal("no attach set")
	}
	n := 0
	for _, set := range sets {
		m, err := ebpf.LoadPinnedMap(filepath.Join(set, "map-"+name), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
		for it := m.Iterate(); it.Next(&key, &value); {
			n++
		}
	}
	return n
}

func init() {
	for name, f := range map[string]func(args []string) error{
		"statfs": func(args []string) error {
			return unix.Statfs(args[0], &unix.Statfs_t{})
		},
		"quotactl":        writeQuotas,
		"own-socket":      func([]string) error { return ownSocket() },
		"accepted-socket": func([]string) error { return acceptedSocket() },
		"own-key":         func([]string) error { return ownKey() },
	} {
		probes[name] = func(args []string) int {
			var errno unix.Errno
			switch err := f(args); {
			case err == nil:
				fmt.Println("ok")
			case errors.As(err, &errno):
				fmt.Println(unix.ErrnoName(errno))
			default:
				fmt.Println(err)
			}
			return 0
		}
	}
}

// writeQuotas asks for quotas to be written to disk, those of all file systems.
func writeQuotas([]string) error {
	const sync, users = 0x800001, 0
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL, sync<<8|users, 0, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// ownSocket connects to an abstract Unix socket of this process.
func ownSocket() error { return withOwnSocket(func(_, _ int) error { return nil }) }

// acceptedSocket passes on a socket that accept(2) gave.
func acceptedSocket() error {
	return withOwnSocket(func(client, listener int) error {
		accepted, _, err := unix.Accept(listener)
		if err != nil {
			return err
		}
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		err = unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(accepted), nil, 0)
		if err != nil {
			return err
		}
		oob := make([]byte, 64)
		_, n, flags, _, err := unix.Recvmsg(pair[1], make([]byte, 1), oob, 0)
		if err == nil && (n == 0 || flags&unix.MSG_CTRUNC != 0) {
			return unix.EACCES // it was left out
		}
		return err
	})
}

func withOwnSocket(f func(client, listener int) error) error {
	at := &unix.SockaddrUnix{Name: fmt.Sprint("@agent-lock-own-", unix.Getpid())}
	listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Bind(listener, at), unix.Listen(listener, 1)); err != nil {
		return err
	}
	client, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(client, at); err != nil {
		return err
	}
	return f(client, listener)
}

func ownKey() error {
	const want = "kept"
	key, err := unix.AddKey("user", "agent-lock", []byte(want), unix.KEY_SPEC_PROCESS_KEYRING)
	if err != nil {
		return err
	}
	got := make([]byte, 16)
	n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, key, got, 0)
	if err == nil && string(got[:n]) != want {
		return fmt.Errorf("the key holds %q", got[:n])
	}
	return err
}
