package event

import (
	"fmt"
	"net/netip"
)

var protocols = map[int]string{6: "TCP", 17: "UDP"}

// Peer returns an address and port with the protocol, as in "203.0.113.5:25 (TCP)".
func Peer(to netip.AddrPort, protocol int) string {
	name, ok := protocols[protocol]
	if !ok {
		name = fmt.Sprint("protocol ", protocol)
	}
	return fmt.Sprintf("%v (%s)", to, name)
}

// families are the kinds of sockets that programs ask for now and then.
var families = map[int]string{
	2: "IPv4", 10: "IPv6", 16: "netlink", 17: "packet", 21: "RDS", 29: "CAN", 30: "TIPC",
	31: "bluetooth", 38: "AF_ALG", 40: "vsock", 43: "SMC", 44: "AF_XDP",
}

// Kind describes a socket by the three numbers that socket(2) takes.
func Kind(family, kind, protocol int) string {
	name, ok := families[family]
	if !ok {
		name = fmt.Sprint("family ", family)
	}
	return fmt.Sprintf("(%s, type %d, protocol %d)", name, kind, protocol)
}
