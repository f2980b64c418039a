package adversary

import "unsafe"

// atFDCWD is AT_FDCWD as raw system calls take it.
const atFDCWD = ^uintptr(99)

// cstring returns the address of a NUL-terminated copy of s, for system calls
// that x/sys has no function for. The copy is never freed: attackers are
// short-lived.
func cstring(s string) uintptr {
	b := append([]byte(s), 0)
	return uintptr(address(&b[0]))
}

// address is where something is and stays, for structures that point to it.
func address[T any](p *T) uint64 {
	pinned = append(pinned, p) // on the heap, therefore, and never freed
	return uint64(uintptr(unsafe.Pointer(p)))
}

var pinned []any
