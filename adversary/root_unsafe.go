package adversary

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bpf(2) and kexec_load(2), for which x/sys has no functions.

func bpfCall(command int, attr []uint64) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(unsafe.Pointer(&attr[0])),
		uintptr(8*len(attr)))
	if errno != 0 {
		return -1, call("bpf", errno)
	}
	return int(fd), nil
}

// bpfMap makes an array of one element. The attributes are pairs of 32 bits.
func bpfMap() (int, error) {
	return bpfCall(unix.BPF_MAP_CREATE, []uint64{unix.BPF_MAP_TYPE_ARRAY | 4<<32, 8 | 1<<32, 0})
}

// bpfGet opens what is pinned at a path.
func bpfGet(path string) (int, error) {
	return bpfCall(unix.BPF_OBJ_GET, []uint64{uint64(cstring(path)), 0})
}

// bpfAnyProgram opens the first program that there is.
func bpfAnyProgram() (int, error) {
	attr := []uint64{0, 0}
	if _, err := bpfCall(unix.BPF_PROG_GET_NEXT_ID, attr); err != nil {
		return -1, err
	}
	return bpfCall(unix.BPF_PROG_GET_FD_BY_ID, []uint64{attr[0] >> 32, 0})
}

// bpfPrograms lists the numbers of all programs.
func bpfPrograms() (string, error) {
	var list strings.Builder
	for attr := []uint64{0, 0}; ; attr[0] >>= 32 { // the number comes after that which is given
		_, err := bpfCall(unix.BPF_PROG_GET_NEXT_ID, attr)
		if errors.Is(err, unix.ENOENT) {
			return list.String(), nil
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&list, attr[0]>>32)
	}
}

// pinMap pins a map and tells the attacker as "pin".
func pinMap(s *Scene) error {
	pin := filepath.Join("/sys/fs/bpf", "al"+canary()[:16])
	s.Arg("pin", pin)
	fd, err := bpfMap()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	s.onClose(func() { _ = os.Remove(pin) })
	_, err = bpfCall(unix.BPF_OBJ_PIN, []uint64{uint64(cstring(pin)), uint64(fd)})
	return err
}

var pinGone = Judge{"the pin of a map outside is gone", func(s *Scene) string {
	if _, err := os.Lstat(s.Target.Args["pin"]); !errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return fmt.Sprintf("the pin %s is gone", s.Target.Args["pin"])
}}

// kexecLoad loads one page to 16 MiB; nil unloads what is loaded.
func kexecLoad(data []byte) error {
	const where, page = 16 << 20, 4096
	type segment struct {
		buf     unsafe.Pointer
		bufSize uintptr
		mem     uintptr
		memSize uintptr
	}
	var errno syscall.Errno
	if data == nil {
		_, _, errno = unix.Syscall6(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0, 0, 0)
	} else {
		s := segment{unsafe.Pointer(&data[0]), uintptr(len(data)), where, page}
		_, _, errno = unix.Syscall6(unix.SYS_KEXEC_LOAD, where, 1, uintptr(unsafe.Pointer(&s)), 0,
			0, 0)
	}
	if errno != 0 {
		return errno
	}
	return nil
}
