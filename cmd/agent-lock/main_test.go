package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"agent-lock": main})
}

// The transcripts show what a user sees. None of them builds a jail: that is for
// the guests.
func TestTranscripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata"})
}
