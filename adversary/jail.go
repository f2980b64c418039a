package adversary

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Jail is a way to run a command confined to a directory.
type Jail struct {
	// Name is shown in reports.
	Name string
	// Layer is what of the jail is attacked, for results; empty: all of it.
	Layer string
	// Argv starts the jail. "{}" stands for the project directory; the command
	// to run in the jail is appended. "{log}" is a file that is not there yet, for a
	// jail that appends a line to it for each denial.
	Argv []string
	// Absent says that what is outside is not there for it: it has nothing to refuse,
	// and to record, when that is not found (ENOENT).
	Absent bool
	// AsUser runs the jail as the invoking user even if this process is root.
	AsUser bool
	// Known names the cases that this jail documents as not stopped, with the
	// reason. Such a leak is shown as known.
	Known map[string]string
}

// argv returns the command line that runs command in project.
func (j Jail) argv(project, log string, command ...string) []string {
	var argv []string
	for _, arg := range j.Argv {
		argv = append(argv, strings.NewReplacer("{}", project, logHolder, log).Replace(arg))
	}
	return append(argv, command...)
}

// records reports whether the jail has a log of its denials.
func (j Jail) records() bool {
	return slices.ContainsFunc(j.Argv, func(arg string) bool {
		return strings.Contains(arg, logHolder)
	})
}

// jailName is what may stand before the = of NAME=CMD.
var jailName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// ParseJail reads NAME=CMD, or a command alone, which is then called by its first word.
// The command is split as by a shell, quotes and backslashes included; nothing is
// expanded.
func ParseJail(s string) (Jail, error) {
	if name, command, ok := strings.Cut(s, "="); ok && jailName.MatchString(name) {
		j, err := parseCommand(command)
		j.Name = name
		return j, err
	}
	return parseCommand(s)
}

func parseCommand(command string) (Jail, error) {
	argv, err := split(command)
	if err != nil {
		return Jail{}, fmt.Errorf("split %q: %w", command, err)
	}
	if len(argv) == 0 {
		return Jail{}, errors.New("the command is empty; to attack without any jail, say env")
	}
	return Jail{Name: argv[0], Argv: argv, AsUser: true}, nil
}

// split cuts s into words.
func split(s string) ([]string, error) {
	var (
		words []string
		word  strings.Builder
		open  bool // a word has begun, if only with an empty pair of quotes
		quote rune // the quote we are in
		esc   bool // the last rune was a backslash
	)
	for _, r := range s {
		switch {
		case esc:
			if quote == '"' && !strings.ContainsRune("\"\\$`", r) {
				word.WriteByte('\\')
			}
			word.WriteRune(r)
			esc = false
		case r == '\\' && quote != '\'':
			esc, open = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case strings.ContainsRune(" \t\n", r):
			if open {
				words = append(words, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(r)
			open = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("quote %c is not closed", quote)
	}
	if esc {
		return nil, errors.New("nothing follows the backslash at the end")
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}
