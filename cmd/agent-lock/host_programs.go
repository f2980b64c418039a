package main

import (
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/agent-lock/agent-lock/vmtest"
)

// hostPrograms are programs of the host's with the libraries that they name. What
// the host lacks is left out.
func hostPrograms(names []string) []vmtest.File {
	var files []vmtest.File
	seen := map[string]bool{}
	add := func(path string) {
		real, err := filepath.EvalSymlinks(path)
		if err == nil && !seen[path] {
			seen[path] = true
			files = append(files, vmtest.File{Host: real, Guest: path})
		}
	}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		add(path)
		libraries, err := exec.Command("ldd", path).Output()
		if err != nil {
			continue // static
		}
		for _, word := range strings.Fields(string(libraries)) {
			if strings.HasPrefix(word, "/") {
				add(word)
			}
		}
	}
	return files
}
