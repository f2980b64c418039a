package main

import (
	"fmt"
	"path/filepath"

	"github.com/u-root/u-root/pkg/core"
	"github.com/u-root/u-root/pkg/core/cat"
	"github.com/u-root/u-root/pkg/core/ls"
	"github.com/u-root/u-root/pkg/core/touch"
)

// applets are the few commands that a guest has, which holds no other program
// than this one: links in its /bin name them.
var applets = map[string]func() core.Command{
	"cat":   cat.New,
	"ls":    ls.New,
	"touch": touch.New,
}

// applet runs the command that the program is called as. ok is false when that
// is no applet.
func applet(std stdio, args []string) (status int, ok bool) {
	name := filepath.Base(args[0])
	command, ok := applets[name]
	if !ok {
		return 0, false
	}
	c := command()
	c.SetIO(std.in, std.out, std.err)
	if err := c.Run(args[1:]...); err != nil {
		fmt.Fprintf(std.err, "%s: %v\n", name, err)
		return 1, true
	}
	return 0, true
}
