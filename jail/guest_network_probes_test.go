//go:build guest

package jail_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	probes["reach"] = reachPeer
	probes["refused"] = waitRefused
	probes["change"] = changeNetwork
	probes["listeners"] = ownListeners
	probes["serve"] = func(args []string) int {
		if err := serveTCP(args[0]); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("up")
		time.Sleep(time.Hour)
		return 0
	}
}

// changeNetwork asks about the network, which works, and tries to change it.
func changeNetwork([]string) int {
	if found, err := net.Interfaces(); err != nil || len(found) == 0 {
		fmt.Println("ask for interfaces:", found, err)
		return 1
	}
	if _, err := linkIndex("lo"); err != nil {
		fmt.Println("ask for an interface:", err)
		return 1
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, down := ifreq("lo", unix.SIOCSIFFLAGS, nil)
	const replaceTables = 64 // IPT_SO_SET_REPLACE
	for what, err := range map[string]error{
		"remove a link":   request(unix.RTM_DELLINK, 0, linkMessage(1)),
		"lower a link":    down,
		"replace filters": unix.SetsockoptInt(fd, unix.SOL_IP, replaceTables, 0),
	} {
		if !errors.Is(err, unix.EPERM) {
			fmt.Println(what, err)
			return 1
		}
	}
	fmt.Println("ok")
	return 0
}

// reach tries to talk to each "tcp ADDRESS" and prints what came of it.
func reachPeer(args []string) int {
	said := map[string]string{}
	for _, peer := range args {
		network, address, _ := strings.Cut(peer, " ")
		said[peer] = talk(network, address)
	}
	json.NewEncoder(os.Stdout).Encode(said)
	return 0
}

func talk(network, address string) string {
	conn, err := net.DialTimeout(network, address, 10*time.Second)
	if err == nil {
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		if network == "udp" {
			if _, err = conn.Write([]byte("hello")); err == nil {
				_, err = conn.Read(make([]byte, 64))
			}
		}
	}
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// waitRefused tries an address until it is refused, and then makes a file.
func waitRefused(args []string) int {
	fmt.Println("up")
	for {
		conn, err := net.DialTimeout("tcp", args[0], time.Second)
		if err == nil {
			conn.Close()
		}
		if errors.Is(err, unix.EACCES) {
			os.WriteFile(args[1], nil, 0o600)
			time.Sleep(time.Hour)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// ownListeners talks to listeners of its own, as test suites do.
func ownListeners([]string) int {
	for _, l := range []struct{ network, at, as string }{
		{"tcp4", "127.0.0.1:0", ""},
		{"tcp4", "0.0.0.0:0", "127.0.0.1"},
		{"tcp4", "0.0.0.0:0", "0.0.0.0"},
		{"tcp4", "127.3.2.1:0", ""},
		{"tcp6", "[::1]:0", ""},
		{"tcp", "[::]:0", "127.0.0.1"},
		{"tcp", "[::]:0", "::1"},
		{"udp4", "127.0.0.1:0", ""},
		{"udp4", "0.0.0.0:0", "127.0.0.1"},
		{"udp6", "[::1]:0", ""},
		{"udp", "[::]:0", "127.0.0.1"},
		{"udp", "[::]:0", "::1"},
	} {
		if err := ownListener(l.network, l.at, l.as); err != nil {
			fmt.Printf("%s %s as %q: %v\n", l.network, l.at, l.as, err)
			return 1
		}
	}
	if err := unconnectedClient(); err != nil {
		fmt.Println("UDP without connecting:", err)
		return 1
	}
	if err := passOwn(); err != nil {
		fmt.Println("pass a socket:", err)
		return 1
	}
	fmt.Println("ok")
	return 0
}

func ownListener(network, at, as string) error {
	var bound net.Addr
	if strings.HasPrefix(network, "udp") {
		conn, err := net.ListenPacket(network, at)
		if err != nil {
			return err
		}
		defer conn.Close()
		bound = conn.LocalAddr()
		go func() {
			buf := make([]byte, 64)
			if n, from, err := conn.ReadFrom(buf); err == nil {
				conn.WriteTo(buf[:n], from)
			}
		}()
	} else {
		l, err := net.Listen(network, at)
		if err != nil {
			return err
		}
		defer l.Close()
		bound = l.Addr()
	}
	address := bound.String()
	if as != "" {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		address = net.JoinHostPort(as, port)
	}
	if got := talk(network[:3], address); got != "ok" {
		return errors.New(got)
	}
	return nil
}

// unconnectedClient gets its port by sending, and its answer all the same.
func unconnectedClient() error {
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer server.Close()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1},
		Port: server.LocalAddr().(*net.UDPAddr).Port}
	if err := unix.Sendto(fd, []byte("hello"), 0, to); err != nil {
		return err
	}
	buf := make([]byte, 64)
	n, from, err := server.ReadFrom(buf)
	if err != nil {
		return err
	}
	_, err = server.WriteTo(buf[:n], from)
	return err
}

// passOwn passes a listener and an accepted connection of its own to itself.
func passOwn() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer conn.Close()
	accepted, err := l.Accept()
	if err != nil {
		return err
	}
	defer accepted.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	for _, c := range []interface{ File() (*os.File, error) }{
		l.(*net.TCPListener), accepted.(*net.TCPConn),
	} {
		f, err := c.File()
		if err != nil {
			return err
		}
		defer f.Close()
		err = unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(int(f.Fd())), nil, 0)
		if err != nil {
			return err
		}
		oob := make([]byte, 64)
		_, n, flags, _, err := unix.Recvmsg(pair[1], make([]byte, 1), oob, 0)
		if err != nil {
			return err
		}
		if n == 0 || flags&unix.MSG_CTRUNC != 0 {
			return errors.New("the descriptor was withheld")
		}
	}
	return nil
}
