package adversary

import (
	"os"

	"golang.org/x/sys/unix"
)

var (
	streamHooks   = []string{"unix_stream_connect"}
	datagramHooks = []string{"unix_may_send"}
)

// sockets: talking to processes outside over Unix sockets.
var sockets = []Case{
	{
		Name: "socket_stream", Family: "sockets", Source: "D49 greywall#55",
		What: "connects to a stream socket outside", Hooks: streamHooks,
		Calls: "socket, connect",
		Setup: listenOutside(unix.SOCK_STREAM, "s"), Attack: attackConnect(mark), Judge: heard,
	},
	{
		Name: "socket_datagram", Family: "sockets", Source: "D49 greywall#55",
		What: "sends to a datagram socket outside", Hooks: datagramHooks,
		Calls: "socket, sendto",
		Setup: listenOutside(unix.SOCK_DGRAM, "s"), Attack: attackSend, Judge: heard,
	},
	{
		Name: "socket_abstract_stream", Family: "sockets", Source: "D51 AutoProver#73",
		What: "connects to an abstract stream socket", Hooks: streamHooks,
		Calls: "socket, connect",
		Setup: listenAbstract(unix.SOCK_STREAM), Attack: attackConnect(mark), Judge: heard,
	},
	{
		Name: "socket_abstract_datagram", Family: "sockets", Source: "D51 AutoProver#73",
		What: "sends to an abstract datagram socket", Hooks: datagramHooks,
		Calls: "socket, sendto",
		Setup: listenAbstract(unix.SOCK_DGRAM), Attack: attackSend, Judge: heard,
	},
	{
		Name: "socket_ssh_agent", Family: "sockets", Source: "D52",
		What: "asks an ssh-agent for its keys", Hooks: streamHooks,
		Calls:  "socket, connect",
		Setup:  listenOutside(unix.SOCK_STREAM, "agent.1"),
		Attack: attackConnect(string(agentRequest)), Judge: heard,
	},
	{
		Name: "socket_container_daemon", Family: "sockets", Source: "D49 greywall#55 ai-bwrap#2",
		What: "speaks to a docker.sock", Hooks: streamHooks,
		Calls:  "socket, connect",
		Setup:  listenOutside(unix.SOCK_STREAM, "docker.sock"),
		Attack: attackConnect("GET /info HTTP/1.0\r\n\r\n"), Judge: heard,
	},
	{
		Name: "socket_symlink", Family: "sockets", Source: "D03 D49",
		What: "connects to a socket outside through a link in the project", Hooks: streamHooks,
		Calls: "socket, connect",
		Setup: func(s *Scene) error {
			if err := listenOutside(unix.SOCK_STREAM, "s")(s); err != nil {
				return err
			}
			s.Arg("socket", s.In("l"))
			return os.Symlink(s.Out("s"), s.In("l"))
		},
		Attack: attackConnect(mark), Judge: heard,
	},
	{
		Name: "socket_in_project", Family: "sockets", Source: "D49",
		What:  "connects to a socket that an outside process bound in the project",
		Calls: "socket, connect",
		Hooks: streamHooks,
		Setup: func(s *Scene) error {
			return s.Listen("socket", unix.SOCK_STREAM, s.In("s"))
		},
		Attack: attackConnect(mark), Judge: heard,
	},
}

// listenOutside is the setup with a socket in the outside directory.
func listenOutside(kind int, name string) func(*Scene) error {
	return func(s *Scene) error { return s.Listen("socket", kind, s.Out(name)) }
}

// listenAbstract is the setup with a socket that has no file.
func listenAbstract(kind int) func(*Scene) error {
	return func(s *Scene) error {
		return s.Listen("socket", kind, "@agent-lock-"+canary()[:16])
	}
}

// attackConnect connects to the socket and writes.
func attackConnect(say string) func(*Target) ([]byte, error) {
	return func(t *Target) ([]byte, error) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, call("socket", err)
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: t.Args["socket"]}); err != nil {
			return nil, call("connect", err)
		}
		_, err = unix.Write(fd, []byte(say))
		return nil, call("write", err)
	}
}

// attackSend sends a datagram to the socket, without connecting first.
func attackSend(t *Target) ([]byte, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, call("socket", err)
	}
	defer unix.Close(fd)
	to := &unix.SockaddrUnix{Name: t.Args["socket"]}
	return nil, call("sendto", unix.Sendto(fd, []byte(mark), 0, to))
}
