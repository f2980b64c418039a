package policy

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestParseNetwork(t *testing.T) {
	for _, s := range []string{"none", "web", "host"} {
		if got, err := ParseNetwork(s); string(got) != s || err != nil {
			t.Errorf("ParseNetwork(%q) = %q, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "all", "Web"} {
		if got, err := ParseNetwork(s); err == nil {
			t.Errorf("ParseNetwork(%q) = %q, want an error", s, got)
		}
	}
}

func TestAllowSocket(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	socket, file := filepath.Join(dir, "s"), filepath.Join(dir, "f")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &Policy{}
	if err := p.AllowSocket(socket, "/home/u"); err != nil {
		t.Errorf("AllowSocket(a socket) = %v", err)
	}
	if rule, ok := p.Nearest(socket); !ok || rule.Rights != Connect {
		t.Errorf("the rule for the socket is %+v, %v, want the right to connect", rule, ok)
	}
	for _, path := range []string{file, dir, filepath.Join(dir, "none")} {
		if err := p.AllowSocket(path, "/home/u"); err == nil {
			t.Errorf("AllowSocket(%s) = nil, want an error", path)
		}
	}
}
