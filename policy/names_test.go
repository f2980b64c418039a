package policy

import "testing"

func TestRuled(t *testing.T) {
	n := DefaultNames()
	for _, tt := range []struct{ path, want string }{
		{"/h/.claude/p/file", ""},
		{"/h/.claude/p", ""},
		{"/h/.claude/p/a/.VSCode/x", "/h/.claude/p/a/.VSCode"},
		{"/h/.claude/p/.git/hooks/x", "/h/.claude/p/.git/hooks"},
		{"/h/.claude/p/.git", "/h/.claude/p/.git"},
		{"/h/.claude/p/.env.local", "/h/.claude/p/.env.local"},
		{"/h/.claude/p/.env.example", ""},
		{"/h/.claude/p2/.vscode", ""},
	} {
		if got := n.Ruled("/h/.claude/p", tt.path); got != tt.want {
			t.Errorf("Ruled(%s) = %q, want %q", tt.path, got, tt.want)
		}
	}
}
