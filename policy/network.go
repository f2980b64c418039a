package policy

import (
	"fmt"
	"io/fs"
	"os"
)

// Network says whom a jail may talk to over the network.
type Network string

// The networks. In each the jail's own listeners can be reached from within, and
// link-local and metadata addresses cannot.
const (
	NetworkNone Network = "none" // nobody else
	NetworkWeb  Network = "web"  // TCP 80 and 443 outside this machine, DNS
	NetworkHost Network = "host" // everybody
)

// ParseNetwork reads the value of --net.
func ParseNetwork(s string) (Network, error) {
	switch n := Network(s); n {
	case NetworkNone, NetworkWeb, NetworkHost:
		return n, nil
	}
	return "", fmt.Errorf("--net %s: it is none, web or host", s)
}

// Gives says in words what the network is.
func (n Network) Gives() string {
	switch n {
	case NetworkNone:
		return "the jail's own listeners"
	case NetworkHost:
		return "everything but link-local and metadata addresses"
	case NetworkWeb:
	}
	return "TCP ports 80 and 443 of other machines, and DNS of this machine's resolvers"
}

// AllowSocket lets a Unix socket of the host's be connected to.
func (p *Policy) AllowSocket(path, home string) error {
	const flag = "--socket"
	if err := p.Allow(path, Connect, flag, home); err != nil {
		return err
	}
	rule := p.Rules[len(p.Rules)-1].Path
	info, err := os.Stat(rule)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s %s: it is not a Unix socket", flag, rule)
	}
	return nil
}
