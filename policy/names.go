package policy

import (
	"errors"
	"fmt"
	"strings"
)

// Names are the rules for names that hold anywhere in the project, whether what is
// named exists or not. A name that ends in * stands for all that begin so; case is
// ignored. A rule for a path decides before them.
type Names struct {
	// Protected names can be read and not changed: programs outside act on what is
	// in them later.
	Protected []string
	// Denied names can neither be read nor changed, unless they are directories: they
	// hold secrets. The longest name that fits decides, so a longer one in Allowed is
	// an exception.
	Denied  []string
	Allowed []string
	// InGit are protected in a .git that the jail has not made itself, InModules at
	// any depth in its modules and worktrees.
	InGit     []string
	InModules []string
	// Free are directories below which no name is protected.
	Free []string
}

// DefaultNames returns the rules for names of a jail without any flags.
func DefaultNames() Names {
	return Names{
		Protected: []string{
			// Editors run tasks and settings of the folder that they open.
			".vscode", ".idea", ".fleet", ".zed", ".devcontainer", ".devcontainer.json",
			".vimrc", ".exrc", ".nvimrc", ".nvim.lua",
			// Agents take hooks, permissions and servers to start from them.
			".claude", ".codex", ".cursor", ".gemini", ".windsurf", ".kiro", ".continue", ".roo",
			".opencode", ".mcp.json", ".aider.conf.yml",
			// Shells and debuggers run them on entering the directory.
			".envrc", ".gdbinit", ".lldbinit",
		},
		Denied:    []string{".env", ".env.*"},
		Allowed:   []string{".env.example", ".env.sample", ".env.template", ".env.dist"},
		InGit:     []string{"hooks", "config", "config.worktree", "commondir"},
		InModules: []string{"hooks", "config", "config.worktree", "commondir", "gitdir"},
		Free:      []string{"node_modules"},
	}
}

// maxName is the length of the longest name that can have a rule, in bytes.
const maxName = 62

// Protect adds a name that is protected anywhere in the project.
func (p *Policy) Protect(name string) error {
	switch plain := strings.TrimSuffix(name, "*"); {
	case plain == "" || plain == "." || plain == "..":
		return fmt.Errorf("--protect %q: name a file or directory", name)
	case strings.Contains(plain, "/"):
		return fmt.Errorf("--protect %s: it is a name, which is protected anywhere in the "+
			"project; one path is protected by --ro %s", name, quote(name))
	case strings.Contains(plain, "*"):
		return fmt.Errorf("--protect %s: a * can only stand at the end", name)
	case len(plain) > maxName:
		return fmt.Errorf("--protect %s: the name is longer than %d bytes", name, maxName)
	}
	p.Names.Protected = append(p.Names.Protected, name)
	return nil
}

// errPrefix is what is wrong with a name that cannot stand for all that begin so.
var errPrefix = errors.New("a * stands at the end of a name, as in ~/.claude.json*")

// cutPrefix takes the * from the end of a path.
func cutPrefix(path string) (plain string, prefix bool, err error) {
	plain, prefix = strings.CutSuffix(path, "*")
	if strings.Contains(plain, "*") || prefix && (plain == "" || strings.HasSuffix(plain, "/")) {
		return "", false, errPrefix
	}
	return plain, prefix, nil
}

// Ruled returns the path up to the name below a project that a rule for names protects
// or denies, "" if there is none, by names alone. It serves explanations.
func (n Names) Ruled(project, path string) string {
	if path == project || !within(path, project) {
		return ""
	}
	parts := strings.Split(path, "/")
	for i := strings.Count(project, "/") + 1; i < len(parts); i++ {
		name := strings.ToLower(parts[i])
		if matches(n.Protected, name) || matches(n.Denied, name) && !matches(n.Allowed, name) {
			return strings.Join(parts[:i+1], "/")
		}
		if name == ".git" && i+1 < len(parts) && matches(n.InGit, strings.ToLower(parts[i+1])) {
			return strings.Join(parts[:i+2], "/")
		}
		if name == ".git" && i+1 == len(parts) {
			return path
		}
	}
	return ""
}

func matches(names []string, name string) bool {
	for _, n := range names {
		plain, prefix := strings.CutSuffix(strings.ToLower(n), "*")
		if name == plain || prefix && strings.HasPrefix(name, plain) {
			return true
		}
	}
	return false
}
