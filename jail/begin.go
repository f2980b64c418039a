package jail

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/agent-lock/agent-lock/bpf"
)

// begun is a jail with the BPF layer, from its slot on.
type begun struct {
	slot *bpf.Slot
	cfg  Config

	jail    *started
	network *network
	rules   *rules
	// held is what the jail is known by, until its slot is given back.
	held []io.Closer
}

// maxBegins is how many pid namespaces a start may make.
const maxBegins = 8

// begin starts pid 1 and arms its namespace. The number of one that leads to another
// jail's place stays taken until the end, so that the next has another.
func (b *begun) begin() (err error) {
	for range maxBegins {
		if err = b.try(); !errors.Is(err, bpf.ErrPlaceTaken) {
			return err
		}
	}
	return err
}

func (b *begun) try() (err error) {
	if b.jail, err = start(b.cfg); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			b.jail.kill()
			b.closeNetwork()
		}
	}()
	pid := b.jail.pid
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return fmt.Errorf("hold the jail's pid namespace: %w", err)
	}
	b.held = append(b.held, namespace)
	if b.network, err = openNetwork(b.slot, b.cfg.Policy.Network, pid); err != nil {
		return err
	}
	if b.rules, err = arm(b.slot, b.cfg, b.jail); err != nil {
		return err
	}
	b.held = append(b.held, b.rules)
	return nil
}

func (b *begun) closeNetwork() {
	if b.network != nil {
		b.network.Close()
		b.network = nil
	}
}

// end gives the slot back. The command has run, or an error says why not: its status
// is what counts.
func (b *begun) end() {
	b.closeNetwork()
	if err := b.slot.Release(); err != nil {
		fmt.Fprintf(b.cfg.Stderr, "agent-lock: the jail has ended: %v\n", err)
	}
	for _, h := range b.held {
		h.Close()
	}
}
