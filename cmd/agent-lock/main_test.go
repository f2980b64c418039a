package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	// The suite runs a copy of this program as the attacker.
	if len(os.Args) > 1 && os.Args[1] == "attacker" {
		os.Exit(dispatch(stdio{os.Stdin, os.Stdout, os.Stderr}, os.Args[1:]))
	}
	testscript.Main(m, map[string]func(){"agent-lock": main})
}

// The transcripts show what a user sees. None of them builds a jail: that is for
// the guests.
func TestTranscripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata"})
}
