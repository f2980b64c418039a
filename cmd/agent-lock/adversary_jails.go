package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/agent-lock/agent-lock/adversary"
	"github.com/agent-lock/agent-lock/jail"
)

// jails returns the jails that --against and --layers name, or our own, and with --compare
// those that are installed. Done removes what they need, whatever the error is.
func (f adversaryFlags) jails(std stdio, user adversary.User) (jails []adversary.Jail,
	done func(), err error) {
	done = func() {}
	taken := func(j adversary.Jail) bool {
		return slices.ContainsFunc(jails, func(k adversary.Jail) bool { return k.Name == j.Name })
	}
	add := func(j adversary.Jail, err error) error {
		if err == nil && taken(j) {
			err = fmt.Errorf("the name %s is taken; give it another: NAME=CMD", j.Name)
		}
		jails = append(jails, j)
		return err
	}
	if len(f.against) == 0 && len(f.layers) == 0 {
		f.against = []string{ownName}
	}
	for _, command := range f.against {
		var err error
		if command == ownName {
			err = add(f.ownJail(""))
		} else {
			err = add(adversary.ParseJail(command))
		}
		if err != nil {
			return nil, done, fmt.Errorf("--against %q: %w", command, err)
		}
	}
	for _, list := range f.layers {
		if err := add(f.ownJail(list)); err != nil {
			return nil, done, fmt.Errorf("--layers %s: %w", list, err)
		}
	}
	if f.compare {
		var others []adversary.Jail
		if others, done, err = comparedJails(std, user); err != nil {
			return nil, done, fmt.Errorf("--compare: %w", err)
		}
		for _, j := range others {
			if !taken(j) { // else --against says how
				jails = append(jails, j)
			}
		}
	}
	return jails, done, nil
}

// comparedJails are those that are installed; it says why others are not. Done removes what
// they need, whatever the error is.
func comparedJails(std stdio, user adversary.User) (jails []adversary.Jail, done func(),
	err error) {
	var undo []func()
	done = func() {
		for _, f := range undo {
			f()
		}
	}
	for _, d := range adversary.Definitions() {
		found, err := d.Find(context.Background())
		if err == nil && user.UID == 0 && d.NoRoot != "" {
			err = fmt.Errorf("start %s as root: %s; add --user NAME", d.Name, d.NoRoot)
		}
		if err != nil {
			fmt.Fprintf(std.err, "agent-lock: adversary: not compared: %v\n", err)
			continue
		}
		j, remove, err := d.Jail(user)
		if err != nil {
			return nil, done, err
		}
		undo = append(undo, remove)
		if number := versionIn(found.Version); number != "" {
			j.Name += " " + number
		}
		jails = append(jails, j)
	}
	return jails, done, nil
}

// versionIn is what of a version fits over a column: a number with a dot, or any.
func versionIn(said string) string {
	return cmp.Or(regexp.MustCompile(`\d+(\.\d+)+`).FindString(said),
		regexp.MustCompile(`\d+`).FindString(said))
}

// ownName is what --against calls our own jail.
const ownName = "agent-lock"

// ownJail is our own jail with some layers; "": those that it has by default.
func (f adversaryFlags) ownJail(list string) (adversary.Jail, error) {
	if os.Geteuid() != 0 {
		return adversary.Jail{}, errors.New("our own jail needs root; " +
			"run it with sudo, or name another jail with --against")
	}
	layers, err := jail.ParseLayers(list)
	if err != nil {
		return adversary.Jail{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return adversary.Jail{}, fmt.Errorf("find our own program: %w", err)
	}
	j := adversary.Jail{Name: ownName, Layer: list, Absent: layers.View,
		Known: knownLeaks(layers, jail.LandlockABI())}
	j.Argv = append([]string{self, "--denials", "off"}, f.jail...)
	if layers.BPF && len(f.jail) == 0 { // a mutant may not record as the score needs it
		j.Argv = append(j.Argv, "--log", "{log}")
	}
	if f.user != "" {
		j.Argv = append(j.Argv, "--user", f.user)
	}
	if list != "" {
		j.Name += " --layers " + list
		j.Argv = append(j.Argv, "--layers", list)
	}
	j.Argv = append(j.Argv, "{}", "--")
	return j, nil
}
