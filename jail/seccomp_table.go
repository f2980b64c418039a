package jail

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// abi is one of the system call interfaces that a process can use.
type abi int

// The interfaces, in the order of the numbers in refusal. An x86-64 kernel also
// runs the calls of i386, an arm64 kernel those of 32-bit ARM.
const (
	abiAMD64 abi = iota
	abiI386
	abiARM64
	abiARM
)

// no is the number of a call that an interface does not have.
const no = -1

// A refusal is a system call that the filter refuses, always or for some values of
// its arguments. Docs and filter are written from the same table.
type refusal struct {
	name    string
	numbers [4]int // by abi
	errno   syscall.Errno
	// when are conditions, of which any one refuses with its own error; none: always.
	when []condition
	// alone: only where there is no BPF layer, which decides case by case, and tells.
	alone bool
}

// A condition holds when all its tests do.
type condition struct {
	errno syscall.Errno
	tests []test
}

// A test looks at the low half of an argument: the kernel ignores the high half
// of what it takes for an int, so a filter must as well.
type test struct {
	arg  int
	mask uint32 // 0: all bits
	// holds when the masked argument is one of values, or is none if except is set.
	values []uint32
	except bool
}

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// anyBit tests whether any of the bits is set.
func anyBit(arg int, bits uint32) []test {
	return []test{{arg: arg, mask: bits, values: []uint32{0}, except: true}}
}

// refusals is the table, by what a group of calls would do.
func refusals() []refusal {
	var all []refusal
	add := func(alone bool, errno syscall.Errno, calls ...refusal) {
		for _, c := range calls {
			c.alone, c.errno = alone, errno
			all = append(all, c)
		}
	}
	call := func(name string, numbers ...int) refusal {
		return refusal{name: name, numbers: [4]int(numbers)}
	}
	refuseNamespaces(&all)
	add(true, unix.EPERM, // mounts and other root directories
		call("mount", 165, 21, 40, 21), call("umount", no, 22, no, no),
		call("umount2", 166, 52, 39, 52), call("pivot_root", 155, 217, 41, 218),
		call("chroot", 161, 61, 51, 61), call("move_mount", 429, 429, 429, 429))
	add(false, unix.EPERM, // what leads to a mount by the new interface
		call("open_tree", 428, 428, 428, 428), call("fsopen", 430, 430, 430, 430),
		call("fsconfig", 431, 431, 431, 431), call("fsmount", 432, 432, 432, 432),
		call("fspick", 433, 433, 433, 433), call("mount_setattr", 442, 442, 442, 442),
		call("open_tree_attr", 467, 467, 467, 467))
	add(false, unix.EPERM, // the machine
		call("swapon", 167, 87, 224, 87), call("swapoff", 168, 115, 225, 115),
		call("acct", 163, 51, 89, 51), call("reboot", 169, 88, 142, 88),
		call("kexec_load", 246, 283, 104, 347), call("kexec_file_load", 320, no, 294, 401),
		call("init_module", 175, 128, 105, 128), call("finit_module", 313, 350, 273, 379),
		call("delete_module", 176, 129, 106, 129), call("iopl", 172, 110, no, no),
		call("ioperm", 173, 101, no, no), call("settimeofday", 164, 79, 170, 79),
		call("clock_settime", 227, 264, 112, 262), call("clock_settime64", no, 404, no, 404),
		call("stime", no, 25, no, no), call("quotactl", 179, 131, 60, 131),
		call("quotactl_fd", 443, 443, 443, 443), call("vhangup", 153, 111, 58, 111))
	add(false, unix.EPERM, // side doors to files and processes
		call("open_by_handle_at", 304, 342, 265, 371),
		call("name_to_handle_at", 303, 341, 264, 370), // a file's number and generation
		call("lookup_dcookie", 212, 253, 18, 249),
		call("fanotify_init", 300, 338, 262, 367), call("userfaultfd", 323, 374, 282, 388))
	add(true, unix.EPERM, call("syslog", 103, 103, 116, 103),
		call("bpf", 321, 357, 280, 386), call("perf_event_open", 298, 336, 241, 364))
	add(true, unix.ENOSYS, // programs do without, as on a kernel that lacks them
		call("add_key", 248, 286, 217, 309), call("request_key", 249, 287, 218, 310),
		call("keyctl", 250, 288, 219, 311), call("io_uring_setup", 425, 425, 425, 425),
		call("io_uring_enter", 426, 426, 426, 426),
		call("io_uring_register", 427, 427, 427, 427))
	add(true, unix.EPERM, // the clock
		call("adjtimex", 159, 124, 171, 124), call("clock_adjtime", 305, 343, 266, 372),
		call("clock_adjtime64", no, 405, no, 405))
	all = append(all, terminalRefusals()...)
	return append(all, socketRefusals()...)
}

// terminalRefusals: what outlives the jail in its terminal, and watching what a passed
// descriptor is of.
func terminalRefusals() []refusal {
	const fioasync = 0x5452 // as the architectures here have it
	ioctl := []condition{{unix.EPERM, []test{{arg: 1, values: []uint32{
		unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD, fioasync}}}}}
	fcntl := []condition{
		{unix.EPERM, append([]test{{arg: 1, values: []uint32{unix.F_SETFL}}},
			anyBit(2, unix.O_ASYNC)...)},
		{unix.EPERM, []test{{arg: 1, values: []uint32{unix.F_NOTIFY}}}},
	}
	return []refusal{
		{name: "ioctl", numbers: [4]int{16, 54, 29, 54}, alone: true, when: ioctl},
		{name: "fcntl", numbers: [4]int{72, 55, 25, 55}, alone: true, when: fcntl},
		{name: "fcntl64", numbers: [4]int{no, 221, no, 221}, alone: true, when: fcntl},
	}
}

// refuseNamespaces: unshare and clone by their flags; clone3 has them in memory, where
// no filter can look, and glibc and Go use clone when it is missing. Bit 7 is
// CLONE_NEWTIME to unshare and part of the signal's number to clone.
func refuseNamespaces(all *[]refusal) {
	*all = append(*all,
		refusal{name: "unshare", numbers: [4]int{272, 310, 97, 337}, alone: true,
			when: []condition{{unix.EPERM, anyBit(0, newNamespaces|unix.CLONE_NEWTIME)}}},
		refusal{name: "clone", numbers: [4]int{56, 120, 220, 120}, alone: true,
			when: []condition{{unix.EPERM, anyBit(0, newNamespaces)}}},
		refusal{name: "clone3", numbers: [4]int{435, 435, 435, 435}, errno: unix.ENOSYS,
			alone: true},
		refusal{name: "setns", numbers: [4]int{308, 346, 268, 375}, errno: unix.EPERM})
}

// Families, types and protocols of sockets that programs need. Everything else is
// answered as by a kernel that was built without.
var (
	socketFamilies   = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
	inetFamilies     = []uint32{unix.AF_INET, unix.AF_INET6}
	inetTypes        = []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM}
	inetProtocols    = []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}
	netlinkProtocols = []uint32{unix.NETLINK_ROUTE}
)

func socketRefusals() []refusal {
	const typeBits = 0xf // above it are SOCK_CLOEXEC and SOCK_NONBLOCK
	inet := test{arg: 0, values: inetFamilies}
	return []refusal{
		{name: "socket", numbers: [4]int{41, 359, 198, 281}, alone: true, when: []condition{
			{unix.EAFNOSUPPORT, []test{{arg: 0, values: socketFamilies, except: true}}},
			{unix.EPERM, []test{inet, {arg: 1, mask: typeBits, values: inetTypes, except: true}}},
			{unix.EPROTONOSUPPORT, []test{inet, {arg: 2, values: inetProtocols, except: true}}},
			{unix.EPROTONOSUPPORT, []test{{arg: 0, values: []uint32{unix.AF_NETLINK}},
				{arg: 2, values: netlinkProtocols, except: true}}},
		}},
		// Its arguments are in memory, so a socket cannot be told from another.
		{name: "socketcall", numbers: [4]int{no, 102, no, no}, when: []condition{
			{unix.ENOSYS, []test{{arg: 0, values: []uint32{1}}}}, // SYS_SOCKET
		}},
	}
}

// RefusedCall is a system call that the filter refuses, for people.
type RefusedCall struct {
	Name string
	// Errnos are the errors that it gives, in the order of its conditions.
	Errnos []string
	// Sometimes says that it depends on the arguments.
	Sometimes bool
	// Alone says that it is refused only where there is no BPF layer.
	Alone bool
}

// RefusedCalls lists them in the order of the table. docs/layers.md is written from it.
func RefusedCalls() []RefusedCall {
	var calls []RefusedCall
	for _, r := range refusals() {
		call := RefusedCall{Name: r.name, Sometimes: len(r.when) > 0, Alone: r.alone}
		for _, c := range r.when {
			call.Errnos = append(call.Errnos, unix.ErrnoName(c.errno))
		}
		if len(r.when) == 0 {
			call.Errnos = []string{unix.ErrnoName(r.errno)}
		}
		call.Errnos = slices.Compact(call.Errnos)
		calls = append(calls, call)
	}
	return calls
}
