package adversary

import (
	"errors"

	"golang.org/x/sys/unix"
)

// keys: the kernel's keyrings, which belong to users and not to directories. A
// process of the user outside has put its canary into the user's keyring.
var keys = []Case{
	{
		Name: "key_user_keyring", Fresh: true, Family: "keys",
		Source: "D65 flatpak#299",
		What:   "links the user's keyring to its own and reads a key in it",
		Hooks:  []string{"key_permission"},
		Setup: func(s *Scene) error {
			if s.victim.noKey != "" {
				return errors.New(s.victim.noKey)
			}
			s.Arg("key", keyName(s.victim.pid))
			return nil
		},
		Attack: attackUserKeyring, Judge: victimRead,
	},
}

func attackUserKeyring(t *Target) ([]byte, error) {
	// Whoever can reach a key from a keyring of its own possesses it.
	_, err := unix.KeyctlInt(unix.KEYCTL_LINK, unix.KEY_SPEC_USER_KEYRING,
		unix.KEY_SPEC_PROCESS_KEYRING, 0, 0)
	if err != nil {
		return nil, call("keyctl LINK", err)
	}
	key, err := unix.KeyctlSearch(unix.KEY_SPEC_PROCESS_KEYRING, "user", t.Args["key"], 0)
	if err != nil {
		return nil, call("keyctl SEARCH", err)
	}
	buf := make([]byte, 64)
	n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, key, buf, 0)
	return buf[:max(min(n, len(buf)), 0)], call("keyctl READ", err)
}
