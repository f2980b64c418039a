package agentlock_test

import (
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const maxReadmeLines = 100

// texts reads the files of the repository, and those that run it in CI, that
// a pattern of path.Match or its base name fits.
func texts(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	names, err := fileNames(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{".ci", ".github"} { // hidden from fileNames
		hidden, err := fileNames(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range hidden {
			names = append(names, folder+"/"+name)
		}
	}
	found := map[string]string{}
	for _, name := range names {
		if !slices.ContainsFunc(patterns, func(p string) bool {
			whole, _ := path.Match(p, name)
			base, _ := path.Match(p, path.Base(name))
			return whole || base
		}) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found[name] = string(text)
	}
	return found
}

var (
	markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
	namedDoc     = regexp.MustCompile(`\bdocs/[\w-]+\.md\b`)
	fenced       = regexp.MustCompile("(?ms)^```.*?^```")
	inlineCode   = regexp.MustCompile("`[^`\n]+`")
	makeCommand  = regexp.MustCompile("(?m)(?:^ *|[`;&|] *|run: *)make((?: +[\\w./=,'\"$-]+)+)")
	makeTarget   = regexp.MustCompile(`(?m)^([a-z][a-z-]*(?: [a-z][a-z-]*)*):(?:[^=]|$)`)
	targetName   = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

// deadLinks finds relative links and docs/ pages, in Markdown, that exists
// does not know.
func deadLinks(pages map[string]string, exists func(name string) bool) []string {
	var problems []string
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		var wanted []string
		for _, m := range markdownLink.FindAllStringSubmatch(pages[page], -1) {
			if !strings.Contains(m[1], ":") {
				wanted = append(wanted, path.Join(path.Dir(page), m[1]))
			}
		}
		wanted = append(wanted, namedDoc.FindAllString(pages[page], -1)...)
		slices.Sort(wanted)
		for _, name := range slices.Compact(wanted) {
			if !exists(name) {
				problems = append(problems, page+": names "+name+", which does not exist")
			}
		}
	}
	return problems
}

// commands returns the parts of a file that a reader or a machine would run.
func commands(name, text string) []string {
	if path.Ext(name) != ".md" {
		var lines []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(strings.TrimSpace(line), "#") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	parts := fenced.FindAllString(text, -1)
	return append(parts, inlineCode.FindAllString(fenced.ReplaceAllString(text, ""), -1)...)
}

// unknownTargets finds `make NAME` where the Makefile has no such target.
func unknownTargets(makefile string, files map[string]string) []string {
	known := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(makefile, -1) {
		for _, name := range strings.Fields(m[1]) {
			known[name] = true
		}
	}
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, part := range commands(name, files[name]) {
			for _, m := range makeCommand.FindAllStringSubmatch(part, -1) {
				for _, word := range strings.Fields(m[1]) {
					if targetName.MatchString(word) && !known[word] {
						problems = append(problems, name+": make "+word+" is not a target")
					}
				}
			}
		}
	}
	return problems
}

// actionUse is a step of a workflow that runs somebody's action.
var actionUse = regexp.MustCompile(`(?m)^\s*(?:- )?uses: *(\S+)(.*)$`)

// pinned is a commit with the version it is, for people and for updates.
var pinned = regexp.MustCompile(`^\S+@[0-9a-f]{40} # v\d`)

// unpinnedActions finds actions that are not fixed to a commit. A tag can be
// moved by whoever owns the action.
func unpinnedActions(files map[string]string) []string {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, m := range actionUse.FindAllStringSubmatch(files[name], -1) {
			if !strings.HasPrefix(m[1], "./") && !pinned.MatchString(m[1]+m[2]) {
				problems = append(problems, name+": pin "+m[1]+" as @COMMIT # vVERSION")
			}
		}
	}
	return problems
}

const (
	spdxBPF    = "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause"
	licenseBPF = `SEC("license") = "Dual BSD/GPL"`
)

// wrongLicenses wants the SPDX line within the first three lines of BPF C, and
// in each program file the license section without which the kernel refuses it.
func wrongLicenses(files map[string]string) []string {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		head := strings.SplitN(files[name], "\n", 4)
		if !strings.Contains(strings.Join(head[:min(3, len(head))], "\n"), spdxBPF) {
			problems = append(problems, name+": the first three lines lack "+spdxBPF)
		}
		if path.Ext(name) == ".c" && !strings.Contains(files[name], licenseBPF) {
			problems = append(problems, name+": no "+licenseBPF)
		}
	}
	return problems
}

func tooLong(name, text string, limit int) []string {
	if n := strings.Count(text, "\n"); n > limit {
		return []string{fmt.Sprintf("%s: %d lines, want at most %d", name, n, limit)}
	}
	return nil
}

// TestDocuments applies the rules on text files to the repository.
func TestDocuments(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	pages := texts(t, "*.md")
	runs := texts(t, "*.md", "*.yml", ".ci/run")
	if pages["README.md"] == "" || runs[".ci/run"] == "" || runs[".github/workflows/ci.yml"] == "" {
		t.Fatal("texts(...) lacks README.md, .ci/run or .github/workflows/ci.yml")
	}
	exists := func(name string) bool {
		_, err := os.Stat(name)
		return err == nil
	}
	problems := slices.Concat(
		tooLong("README.md", pages["README.md"], maxReadmeLines),
		deadLinks(pages, exists),
		unknownTargets(string(makefile), runs),
		unpinnedActions(texts(t, "*.yml")),
		wrongLicenses(texts(t, "*.bpf.c", "*.bpf.h")),
	)
	for _, p := range problems {
		t.Error(p)
	}
}

func TestDeadLinks(t *testing.T) {
	pages := map[string]string{
		"README.md": "[a](docs/a.md) [b](docs/b.md#part) [c](https://example.com/d.md) `docs/e.md`",
		"docs/a.md": "[up](../README.md) [beside](b.md) [here](#part)",
	}
	exists := func(name string) bool { return name == "README.md" || name == "docs/a.md" }
	want := []string{
		"README.md: names docs/b.md, which does not exist",
		"README.md: names docs/e.md, which does not exist",
		"docs/a.md: names docs/b.md, which does not exist",
	}
	if diff := cmp.Diff(want, deadLinks(pages, exists)); diff != "" {
		t.Errorf("deadLinks(pages) differs (-want +got):\n%s", diff)
	}
}

func TestUnknownTargets(t *testing.T) {
	makefile := "KERNEL ?= 6.1\nX := y\nrun: build ## run it\nbuild vm:\n\techo oops: no\n"
	files := map[string]string{
		"README.md": "make sure that `make run` and `make vm KERNEL=6.1 RUN=x` work\n" +
			"```sh\nmake build test\n```\n",
		".ci/run": "# make coffee\nmake -j2 build check\ntrue && make -C \"$x\" deploy\n" +
			"apt-get install make git\n",
	}
	want := []string{
		".ci/run: make check is not a target",
		".ci/run: make deploy is not a target",
		"README.md: make test is not a target",
	}
	if diff := cmp.Diff(want, unknownTargets(makefile, files)); diff != "" {
		t.Errorf("unknownTargets(files) differs (-want +got):\n%s", diff)
	}
}

func TestUnpinnedActions(t *testing.T) {
	commit := strings.Repeat("0123456789", 4)
	files := map[string]string{"ci.yml": "steps:\n" +
		"  - uses: a/checkout@" + commit + " # v5.0.0\n" +
		"  - uses: ./.github/actions/vmtest\n" +
		"  - name: x\n    uses: a/cache@v4\n" +
		"  - uses: a/go@" + commit + "\n"}
	want := []string{
		"ci.yml: pin a/cache@v4 as @COMMIT # vVERSION",
		"ci.yml: pin a/go@" + commit + " as @COMMIT # vVERSION",
	}
	if diff := cmp.Diff(want, unpinnedActions(files)); diff != "" {
		t.Errorf("unpinnedActions(files) differs (-want +got):\n%s", diff)
	}
}

func TestWrongLicenses(t *testing.T) {
	files := map[string]string{
		"bpf/a.bpf.c": "//go:build ignore\n// " + spdxBPF + "\n\nchar l[] " + licenseBPF + ";\n",
		"bpf/b.bpf.c": "//go:build ignore\n\n\n// " + spdxBPF + "\n",
		"bpf/c.bpf.h": "/* " + spdxBPF + " */\n",
	}
	want := []string{
		"bpf/b.bpf.c: the first three lines lack " + spdxBPF,
		"bpf/b.bpf.c: no " + licenseBPF,
	}
	if diff := cmp.Diff(want, wrongLicenses(files)); diff != "" {
		t.Errorf("wrongLicenses(files) differs (-want +got):\n%s", diff)
	}
}

func TestTooLong(t *testing.T) {
	text := strings.Repeat("line\n", maxReadmeLines)
	if got := tooLong("README.md", text, maxReadmeLines); got != nil {
		t.Errorf("tooLong(100 lines) = %v, want nothing", got)
	}
	want := []string{"README.md: 101 lines, want at most 100"}
	if diff := cmp.Diff(want, tooLong("README.md", text+"more\n", maxReadmeLines)); diff != "" {
		t.Errorf("tooLong(101 lines) differs (-want +got):\n%s", diff)
	}
}
