package adversary

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// addedAddress is a loopback address that no machine has of itself.
var addedAddress = netip.MustParseAddr("127.66.0.1")

// hasAddress reports whether some interface has the address.
func hasAddress(a netip.Addr) bool {
	addrs, _ := net.InterfaceAddrs()
	for _, addr := range addrs {
		if p, err := netip.ParsePrefix(addr.String()); err == nil && p.Addr() == a {
			return true
		}
	}
	return false
}

// changeAddress asks rtnetlink to add or remove an address of the loopback interface.
func changeAddress(request uint16, a netip.Addr) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	order := binary.NativeEndian
	const loopback, length = 1, unix.SizeofNlMsghdr + unix.SizeofIfAddrmsg + 2*8
	m := order.AppendUint32(nil, length)
	m = order.AppendUint16(m, request)
	m = order.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	m = append(m, make([]byte, 8)...) // sequence, port
	m = append(m, unix.AF_INET, 32, 0, unix.RT_SCOPE_HOST)
	m = order.AppendUint32(m, loopback)
	for _, attribute := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		m = order.AppendUint16(m, 8)
		m = order.AppendUint16(m, attribute)
		m = append(m, a.AsSlice()...)
	}
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n >= unix.SizeofNlMsghdr+4 {
		if errno := -int32(order.Uint32(answer[unix.SizeofNlMsghdr:])); errno != 0 {
			return syscall.Errno(errno)
		}
	}
	return nil
}
