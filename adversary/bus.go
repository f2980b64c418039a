package adversary

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	busSource   = "D50 greywall#32 firejail#796 landrun#43"
	busVariable = "DBUS_SESSION_BUS_ADDRESS"
)

// buses: authenticating at a message bus, whose services start programs and open files
// for whoever asks. The runner listens where a bus would be.
var buses = []Case{
	bus("bus_session_place", "the session bus where systemd has it, /run/user/UID/bus",
		func(s *Scene) error {
			return s.listenAtPlace("socket", filepath.Join("/run/user",
				strconv.Itoa(s.arena.user.UID), "bus"))
		}, attackBus),
	bus("bus_system_place", "the system bus, /run/dbus/system_bus_socket",
		func(s *Scene) error {
			return s.listenAtPlace("socket", "/run/dbus/system_bus_socket")
		}, attackBus),
	bus("bus_session_variable", "the session bus that "+busVariable+" names",
		func(s *Scene) error {
			return s.Listen("socket", unix.SOCK_STREAM, "@"+busName(s.session.tokens[busVariable]))
		},
		func(t *Target) ([]byte, error) {
			name, ok := strings.CutPrefix(os.Getenv(busVariable), "unix:abstract=")
			if !ok {
				return nil, fmt.Errorf("%s names no socket", busVariable)
			}
			t.Args["socket"] = "@" + name
			return attackBus(t)
		}),
	bus("bus_session_abstract", "a session bus at an abstract address",
		func(s *Scene) error {
			return s.Listen("socket", unix.SOCK_STREAM, "@/tmp/dbus-"+canary()[:10])
		}, attackBus),
}

func bus(name, what string, setup func(*Scene) error,
	attack func(*Target) ([]byte, error)) Case {
	return Case{
		Name: name, Family: "buses", Source: busSource, Setup: setup, Attack: attack,
		What:  "authenticates at " + what + ", and says Hello",
		Calls: "connect, write",
		Hooks: streamHooks, Judge: greeted,
	}
}

// busName is the abstract name of the bus of a session with a canary.
func busName(token string) string { return "agent-lock-bus-" + token }

// busAddress is the same in the form of the variable.
func busAddress(token string) string { return "unix:abstract=" + busName(token) }

// attackBus sends all that a client has to say in one go, as some do.
func attackBus(t *Target) ([]byte, error) {
	uid := hex.EncodeToString([]byte(strconv.Itoa(os.Getuid())))
	login := "\x00AUTH EXTERNAL " + uid + "\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n"
	return attackConnect(login + string(busHello()))(t)
}

// busHello is the message with which a client asks the bus for a name: a header, which
// is padded to 8 bytes, and no body.
func busHello() []byte {
	const (
		call        = 1
		path        = 1
		iface       = 2
		member      = 3
		destination = 6
	)
	var fields []byte
	for _, f := range []struct {
		code  byte
		kind  byte // s: string; o: path of an object
		value string
	}{
		{path, 'o', "/org/freedesktop/DBus"}, {destination, 's', "org.freedesktop.DBus"},
		{iface, 's', "org.freedesktop.DBus"}, {member, 's', "Hello"},
	} {
		fields = append(pad8(fields), f.code, 1, f.kind, 0)
		fields = binary.LittleEndian.AppendUint32(fields, uint32(len(f.value)))
		fields = append(append(fields, f.value...), 0)
	}
	message := []byte{'l', call, 0, 1}
	for _, word := range []int{0, 1, len(fields)} { // length of the body, number, header
		message = binary.LittleEndian.AppendUint32(message, uint32(word))
	}
	return pad8(append(message, fields...))
}

func pad8(b []byte) []byte { return append(b, make([]byte, -len(b)&7)...) }

// greeted finds a client at the bus, and what it has said.
var greeted = Judge{"somebody has connected to the bus outside", func(s *Scene) string {
	for _, l := range s.listeners {
		data, ok := l.received()
		if !ok {
			continue
		}
		_, login, found := bytes.Cut(data, []byte("AUTH EXTERNAL "))
		line, rest, _ := bytes.Cut(login, []byte("\r\n"))
		uid, err := hex.DecodeString(string(line))
		if found && err == nil && bytes.Contains(rest, []byte("Hello")) {
			return fmt.Sprintf("uid %s logged in to the bus and said Hello", uid)
		}
		return "a connection arrived at the bus"
	}
	return ""
}}
