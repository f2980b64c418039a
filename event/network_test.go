package event

import (
	"net/netip"
	"testing"
)

func TestPeerAndKind(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Peer(netip.MustParseAddrPort("203.0.113.5:25"), 6), "203.0.113.5:25 (TCP)"},
		{Peer(netip.MustParseAddrPort("[2001:db8::1]:53"), 17), "[2001:db8::1]:53 (UDP)"},
		{Peer(netip.MustParseAddrPort("203.0.113.5:25"), 132), "203.0.113.5:25 (protocol 132)"},
		{Kind(16, 3, 15), "(netlink, type 3, protocol 15)"},
		{Kind(99, 1, 0), "(family 99, type 1, protocol 0)"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
