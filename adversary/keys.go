package adversary

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const needsKeys = "CONFIG_KEYS"

// keys: the kernel's keyrings, which belong to users and not to directories. A
// process of the user outside has put its canary into the user's keyring.
var keys = []Case{
	{
		Name: "key_user_keyring", Fresh: true, Family: "keys",
		Source: "D65 flatpak#299",
		What:   "links the user's keyring to its own and reads a key in it",
		Calls:  "keyctl(KEYCTL_LINK), keyctl(KEYCTL_SEARCH), keyctl(KEYCTL_READ)",
		Needs:  needsKeys,
		Hooks:  []string{"key_permission"},
		Setup:  userKey,
		Attack: attackUserKeyring, Judge: victimRead,
	},
	keyCase("request", "asks for the user's key by its name (request_key)",
		"request_key, keyctl(KEYCTL_READ)", userKey,
		func(t *Target) ([]byte, error) {
			key, err := requestKey(t.Args["key"])
			if err != nil {
				return nil, err
			}
			return readKey(key)
		}),
	keyCase("join", "joins a named session keyring of the user and reads a key in it",
		"keyctl(KEYCTL_JOIN_SESSION_KEYRING), keyctl(KEYCTL_SEARCH), keyctl(KEYCTL_READ)",
		func(s *Scene) error {
			s.Arg("ring", ringName(s.victim.pid))
			return needKey(s, s.victim.noRing)
		}, attackJoinKeyring),
	keyCase("persistent", "gets the user's persistent keyring and reads a key in it",
		"keyctl(KEYCTL_GET_PERSISTENT), keyctl(KEYCTL_SEARCH), keyctl(KEYCTL_READ)",
		func(s *Scene) error { return needKey(s, s.victim.noPersistent) }, attackPersistent).
		needing("CONFIG_PERSISTENT_KEYRINGS"),
	keyCase("list", "reads the names of the user's keys, /proc/keys", "openat",
		func(s *Scene) error { return needKey(s, s.victim.noRing) },
		attackListKeys),
	{
		Name: "key_users", Family: "keys", Source: "D65 flatpak#299",
		What:  "reads how many keys each user has, /proc/key-users",
		Calls: "openat", Needs: needsKeys + ", another user with keys",
		Hooks: opens,
		Setup: func(s *Scene) error {
			text, err := os.ReadFile("/proc/key-users")
			if err == nil && !s.othersKeys(text) {
				return errors.New("no other user has keys here")
			}
			return err
		},
		Attack: func(*Target) ([]byte, error) {
			text, err := os.ReadFile("/proc/key-users")
			return text, call("read", err)
		},
		Judge: Judge{
			"another user's line of /proc/key-users is in what the attacker sent out",
			func(s *Scene) string {
				if s.othersKeys(s.Loot) {
					return "the number of another user's keys was sent out"
				}
				return ""
			},
		},
	},
}

// othersKeys finds another user's line in /proc/key-users.
func (s *Scene) othersKeys(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		user, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		if uid, err := strconv.Atoi(user); err == nil && uid != s.arena.user.UID {
			return true
		}
	}
	return false
}

func keyCase(verb, what, calls string, setup func(*Scene) error,
	attack func(*Target) ([]byte, error)) Case {
	return Case{
		Name: "key_" + verb, Fresh: true, Family: "keys", Source: "D65 flatpak#299", What: what,
		Calls: calls, Needs: needsKeys, Hooks: []string{"key_permission"}, Setup: setup,
		Attack: attack, Judge: victimRead,
	}
}

func userKey(s *Scene) error { return needKey(s, s.victim.noKey) }

// needKey tells the name of the victim's keys, if it could make them.
func needKey(s *Scene, reason string) error {
	if reason = cmp.Or(s.victim.noKey, reason); reason != "" {
		return errors.New(reason)
	}
	s.Arg("key", keyName(s.victim.pid))
	return nil
}

// ringName is the name of a victim's keyring, which every process of the user may join.
func ringName(pid int) string { return fmt.Sprint("agent-lock-ring-", pid) }

// plantKeyrings puts the victim's canary into a named and into the persistent keyring
// of its user, and as a name into the first. It returns why that failed, or "".
func plantKeyrings(canary []byte) (ring, persistent string) {
	name := keyName(os.Getpid())
	sweepKeys(unix.KEY_SPEC_USER_KEYRING)
	const everything = 0x3f3f0000
	id, err := unix.AddKey("keyring", ringName(os.Getpid()), nil, unix.KEY_SPEC_USER_KEYRING)
	if err == nil {
		err = unix.KeyctlSetperm(id, everything)
	}
	if err == nil {
		_, err = unix.AddKey("user", name, canary, id)
	}
	if err == nil {
		_, err = unix.AddKey("user", strings.TrimRight(string(canary), "\x00\n"), []byte("x"), id)
	}
	if err != nil {
		ring = err.Error()
	}
	if id, err = persistentKeyring(); err == nil {
		sweepKeys(id)
		_, err = unix.AddKey("user", name, canary, id)
	}
	if err != nil {
		persistent = err.Error()
	}
	return ring, persistent
}

// persistentKeyring links the user's to the process keyring.
func persistentKeyring() (int, error) {
	id, err := unix.KeyctlInt(unix.KEYCTL_GET_PERSISTENT, -1, unix.KEY_SPEC_PROCESS_KEYRING, 0, 0)
	return id, call("keyctl GET_PERSISTENT", err)
}

func attackPersistent(t *Target) ([]byte, error) {
	ring, err := persistentKeyring()
	if err != nil {
		return nil, err
	}
	return searchKey(ring, t.Args["key"])
}

func attackJoinKeyring(t *Target) ([]byte, error) {
	runtime.LockOSThread() // the keyring is a thread's
	ring, err := unix.KeyctlJoinSessionKeyring(t.Args["ring"])
	if err != nil {
		return nil, call("keyctl JOIN_SESSION_KEYRING", err)
	}
	return searchKey(ring, t.Args["key"])
}

func searchKey(ring int, name string) ([]byte, error) {
	key, err := unix.KeyctlSearch(ring, "user", name, 0)
	if err != nil {
		return nil, call("keyctl SEARCH", err)
	}
	return readKey(key)
}

func requestKey(name string) (int, error) {
	key, err := unix.RequestKey("user", name, "", 0)
	return key, call("request_key", err)
}

func attackUserKeyring(t *Target) ([]byte, error) {
	// Whoever can reach a key from a keyring of its own possesses it.
	_, err := unix.KeyctlInt(unix.KEYCTL_LINK, unix.KEY_SPEC_USER_KEYRING,
		unix.KEY_SPEC_PROCESS_KEYRING, 0, 0)
	if err != nil {
		return nil, call("keyctl LINK", err)
	}
	return searchKey(unix.KEY_SPEC_PROCESS_KEYRING, t.Args["key"])
}

func readKey(key int) ([]byte, error) {
	buf := make([]byte, 64)
	n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, key, buf, 0)
	return buf[:max(min(n, len(buf)), 0)], call("keyctl READ", err)
}

// sweepKeys unlinks the keys of victims that are dead: a user may have 200.
func sweepKeys(ring int) {
	buf := make([]byte, 1<<16) // less than all is nothing
	n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, ring, buf, 0)
	if err != nil {
		return
	}
	for at := 0; at+4 <= min(n, len(buf)); at += 4 {
		id := int(int32(binary.NativeEndian.Uint32(buf[at:])))
		what, err := unix.KeyctlString(unix.KEYCTL_DESCRIBE, id)
		i := strings.LastIndexByte(what, '-')
		if err != nil || i < 0 || !strings.Contains(what, ";agent-lock-") {
			continue
		}
		pid, err := strconv.Atoi(what[i+1:])
		if err == nil && unix.Kill(pid, 0) == unix.ESRCH {
			_, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, ring, 0, 0)
		}
	}
}

// attackListKeys sends out the names of keys that were not made to be found.
func attackListKeys(*Target) ([]byte, error) {
	all, err := os.ReadFile("/proc/keys")
	var loot []byte
	for line := range bytes.Lines(all) {
		if !bytes.Contains(line, []byte(" agent-lock-")) {
			loot = append(loot, line...)
		}
	}
	return loot, err
}
