package adversary

import "unsafe"

// atFDCWD is AT_FDCWD as raw system calls take it.
const atFDCWD = ^uintptr(99)

// cstring returns the address of a NUL-terminated copy of s, for system calls
// that x/sys has no function for. The copy is never freed: attackers are
// short-lived.
func cstring(s string) uintptr {
	b := append([]byte(s), 0)
	pinned = append(pinned, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

var pinned [][]byte
