package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/hashicorp/go-multierror"
)

// NetworkMode says whom a jail may talk to.
type NetworkMode uint32

// The modes, see enum network_mode.
const (
	NetworkNone = NetworkMode(jailNetworkModeNETWORK_NONE)
	NetworkWeb  = NetworkMode(jailNetworkModeNETWORK_WEB)
	NetworkHost = NetworkMode(jailNetworkModeNETWORK_HOST)
)

// MaxResolvers is how many name servers a jail may have.
const MaxResolvers = 8

// Network is what a jail may use of the network.
type Network struct {
	Mode NetworkMode
	// Apart is the inode number of the jail's own network namespace; 0: it has none.
	Apart     uint32
	Resolvers []netip.Addr
}

// SetNetwork puts a network policy in force. Without it a slot's jail may talk to
// its own listeners only.
func (s *Slot) SetNetwork(n Network) error {
	value := jailNetwork{Mode: jailNetworkMode(n.Mode), Apart: n.Apart}
	for i, r := range n.Resolvers[:min(len(n.Resolvers), MaxResolvers)] {
		value.Resolvers[i].Word = words(r)
	}
	if err := s.set.maps.Networks.Put(s.number, value); err != nil {
		return fmt.Errorf("enter network policy: %w", err)
	}
	return nil
}

// SetLocal says which addresses are this machine's. What was said before is gone
// afterwards, but never before what is new is there.
func (s *Slot) SetLocal(ranges []netip.Prefix) error {
	if s.local == nil {
		s.local = map[jailLocalRange]bool{}
	}
	want := map[jailLocalRange]bool{}
	for _, r := range ranges {
		want[s.localRange(r)] = true
	}
	var failed *multierror.Error
	for key := range want {
		if s.local[key] {
			continue
		}
		if err := s.set.maps.LocalRanges.Put(key, uint32(1)); err != nil {
			failed = multierror.Append(failed, fmt.Errorf("enter a local address: %w", err))
			continue
		}
		s.local[key] = true
	}
	for key := range s.local {
		if want[key] {
			continue
		}
		err := s.set.maps.LocalRanges.Delete(key)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			failed = multierror.Append(failed, fmt.Errorf("remove a local address: %w", err))
			continue
		}
		delete(s.local, key)
	}
	return failed.ErrorOrNil()
}

// localRange is a prefix as the map has it: IPv4 within ::ffff:0:0/96.
func (s *Slot) localRange(p netip.Prefix) jailLocalRange {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	key := jailLocalRange{Bits: uint32(32 + bits), Slot: s.number}
	key.Address.Word = words(p.Masked().Addr())
	return key
}

// localRanges finds the addresses that an earlier supervisor has left in the slot.
func (s *Slot) localRanges() (map[jailLocalRange]bool, error) {
	keys := map[jailLocalRange]bool{}
	var key jailLocalRange
	var value uint32
	it := s.set.maps.LocalRanges.Iterate()
	for it.Next(&key, &value) {
		if key.Slot == s.number {
			keys[key] = true
		}
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read local addresses: %w", err)
	}
	return keys, nil
}

// resetNetwork removes what an earlier jail left in the slot.
func (s *Slot) resetNetwork() error {
	if err := s.SetNetwork(Network{}); err != nil {
		return err
	}
	return s.SetLocal(nil)
}

// words is an address as the programs have it: network order, IPv4 mapped.
func words(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

// Peer is whom a socket was to talk to. Where Why is WhyKind, only what describes
// the socket is set.
type Peer struct {
	Address                netip.AddrPort
	Family, Type, Protocol int
}

func decodePeer(p jailPeer) *Peer {
	var b [16]byte
	for i, w := range p.Address.Word {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return &Peer{
		Address: netip.AddrPortFrom(netip.AddrFrom16(b).Unmap(), p.Port),
		Family:  int(p.Family), Type: int(p.Type), Protocol: int(p.Protocol),
	}
}
