package jail

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestResolvers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"none", nil, []string{"127.0.0.1"}},
		{"plain", map[string]string{resolvConf: "# nameserver 192.0.2.9\nsearch example\n" +
			"nameserver 192.0.2.1\nnameserver\tfe80::1%eth0 \nnameserver bad\nnameserver"},
			[]string{"192.0.2.1", "fe80::1"}},
		{"stub", map[string]string{resolvConf: "nameserver 127.0.0.53\noptions edns0",
			resolvedConf: "nameserver 192.0.2.1\nnameserver ::ffff:192.0.2.2\n"},
			[]string{"127.0.0.53", "192.0.2.1", "192.0.2.2"}},
		{"not_asked", map[string]string{resolvConf: "nameserver 192.0.2.1",
			resolvedConf: "nameserver 192.0.2.2"}, []string{"192.0.2.1"}},
	} {
		var got []string
		for _, r := range resolvers(func(name string) []byte { return []byte(tt.files[name]) }) {
			got = append(got, r.String())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("resolvers(%s) (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestLocalRange(t *testing.T) {
	for _, tt := range []struct {
		family, kind, bits uint8
		to                 string // "" is no attribute
		want               string // "" is not local
	}{
		{unix.AF_INET, unix.RTN_LOCAL, 8, "127.0.0.0", "127.0.0.0/8"},
		{unix.AF_INET, unix.RTN_LOCAL, 32, "192.0.2.1", "192.0.2.1/32"},
		{unix.AF_INET6, unix.RTN_ANYCAST, 128, "2001:db8::", "2001:db8::/128"},
		{unix.AF_INET6, unix.RTN_LOCAL, 0, "", "::/0"},
		{unix.AF_INET, unix.RTN_UNICAST, 24, "192.0.2.0", ""},
	} {
		data, err := binary.Append(nil, binary.NativeEndian, unix.RtMsg{
			Family: tt.family, Type: tt.kind, Dst_len: tt.bits})
		if err != nil {
			t.Fatal(err)
		}
		if tt.to != "" {
			to := netip.MustParseAddr(tt.to).AsSlice()
			data = binary.NativeEndian.AppendUint16(data, uint16(unix.SizeofRtAttr+len(to)))
			data = append(binary.NativeEndian.AppendUint16(data, unix.RTA_DST), to...)
		}
		m := &syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.RTM_NEWROUTE}, Data: data}
		p, ok, err := localRange(m)
		got := ""
		if ok {
			got = p.String()
		}
		if got != tt.want || err != nil {
			t.Errorf("localRange(%+v) = %q, %v, want %q", tt, got, err, tt.want)
		}
	}
}
