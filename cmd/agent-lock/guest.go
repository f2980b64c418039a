package main

import (
	"github.com/agent-lock/agent-lock/vmtest"
)

// runGuestInit is pid 1 of vmtest's guests.
func runGuestInit(_ stdio, args []string) int {
	return vmtest.GuestMain(args)
}
