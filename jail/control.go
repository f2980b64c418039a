package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// control is one end of the socket pair between the supervisor and the jail's
// processes: reports come from them, and a byte goes to each when it may go on. Its end
// is the other side's death.
type control struct{ *os.File }

func controlPair() (ours, theirs control, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ours, theirs, fmt.Errorf("make control socket: %w", err)
	}
	// The kernel then says who sends.
	if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return ours, theirs, fmt.Errorf("make control socket: %w", err)
	}
	return control{os.NewFile(uintptr(fds[0]), "control")},
		control{os.NewFile(uintptr(fds[1]), "control")}, nil
}

// letGo lets the process that waits go on; a ruleset of Landlock is given to it.
func (c control) letGo(rules *ruleset) error {
	var rights []byte
	if rules != nil {
		rights = unix.UnixRights(rules.fd)
	}
	return unix.Sendmsg(int(c.Fd()), []byte{1}, rights, nil, 0)
}

// read waits for the next report and says whose it is, as a pid of ours.
func (c control) read(flags int) (r report, pid int, err error) {
	var raw [unsafe.Sizeof(r)]byte
	oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	n, oobn, _, _, err := unix.Recvmsg(int(c.Fd()), raw[:], oob, unix.MSG_WAITALL|flags)
	for errors.Is(err, unix.EINTR) {
		n, oobn, _, _, err = unix.Recvmsg(int(c.Fd()), raw[:], oob, unix.MSG_WAITALL|flags)
	}
	if err == nil && n != len(raw) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return r, 0, err
	}
	r = *(*report)(unsafe.Pointer(&raw))
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return r, 0, err
	}
	if len(messages) != 1 {
		return r, 0, fmt.Errorf("%d control messages, want one", len(messages))
	}
	sender, err := unix.ParseUnixCredentials(&messages[0])
	if err != nil {
		return r, 0, err
	}
	return r, int(sender.Pid), nil
}
