package kernels

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// aptSource is one suite of one archive in apt's configuration.
type aptSource struct {
	uri        string
	suite      string
	components []string
	signedBy   string // a keyring, or a key of several lines; empty: apt's default
}

// readSources reads sources.list and the files of sources.list.d. What cannot
// be read or understood is left out: apt itself complains about it.
func readSources(list, parts string) []aptSource {
	var all []aptSource
	names, err := filepath.Glob(filepath.Join(parts, "*"))
	if err != nil {
		names = nil
	}
	for _, name := range append([]string{list}, names...) {
		text, err := os.ReadFile(name)
		switch {
		case err != nil:
		case strings.HasSuffix(name, ".list"):
			all = append(all, parseOneLine(string(text))...)
		case strings.HasSuffix(name, ".sources"):
			all = append(all, parseDeb822(string(text))...)
		}
	}
	return all
}

// parseOneLine reads lines such as
//
//	deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main
func parseOneLine(text string) []aptSource {
	var all []aptSource
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb")
		if !ok || rest == strings.TrimLeft(rest, " \t") {
			continue
		}
		var s aptSource
		rest = strings.TrimSpace(rest)
		if options, after, ok := strings.Cut(rest, "]"); ok && strings.HasPrefix(rest, "[") {
			for _, o := range strings.Fields(options[1:]) {
				if v, ok := strings.CutPrefix(o, "signed-by="); ok {
					s.signedBy = v
				}
			}
			rest = after
		}
		fields := strings.Fields(rest)
		if len(fields) < 3 {
			continue
		}
		s.uri, s.suite, s.components = fields[0], fields[1], fields[2:]
		all = append(all, s)
	}
	return all
}

// parseDeb822 reads paragraphs of "Field: value" lines.
func parseDeb822(text string) []aptSource {
	var all []aptSource
	fields := map[string]string{}
	last := ""
	flush := func() {
		off := strings.EqualFold(fields["enabled"], "no")
		if !off && slices.Contains(strings.Fields(fields["types"]), "deb") {
			for _, uri := range strings.Fields(fields["uris"]) {
				for _, suite := range strings.Fields(fields["suites"]) {
					all = append(all, aptSource{uri, suite,
						strings.Fields(fields["components"]), fields["signed-by"]})
				}
			}
		}
		fields, last = map[string]string{}, ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "":
			flush()
		case line[0] == ' ' || line[0] == '\t':
			fields[last] += "\n" + line
		default:
			name, value, _ := strings.Cut(line, ":")
			last = strings.ToLower(name)
			fields[last] = strings.TrimSpace(value)
		}
	}
	flush()
	return all
}

// debianSuites are the names that a suite of Debian's archive begins with.
var debianSuites = []string{"bullseye", "bookworm", "trixie", "forky", "duke", "sid",
	"oldoldstable", "oldstable", "stable", "testing", "unstable"}

// archive is which of Debian's two archives s is a suite of: "main",
// "security", or "" when it is neither.
func (s aptSource) archive() string {
	base, suffix, _ := strings.Cut(s.suite, "-")
	if !slices.Contains(debianSuites, base) || !slices.Contains(s.components, "main") {
		return ""
	}
	// Others call their suites stable, too: they bring a key of their own.
	if !strings.Contains(s.signedBy, "\n") && s.signedBy != "" &&
		!strings.Contains(path.Base(s.signedBy), "debian") {
		return ""
	}
	switch suffix {
	case "", "updates", "backports", "proposed-updates":
		return "main"
	case "security":
		return "security"
	}
	return ""
}

// debianArchives finds Debian's archives among the sources, by their name, and
// the suites that are configured anyway. An address that ends as Debian's does
// is preferred over others.
func debianArchives(sources []aptSource) (archives map[string]aptSource, suites []string) {
	archives = map[string]aptSource{}
	for _, s := range sources {
		name := s.archive()
		if name == "" {
			continue
		}
		suites = append(suites, s.suite)
		usual := func(s aptSource) bool {
			return strings.HasPrefix(path.Base(strings.TrimRight(s.uri, "/")), "debian")
		}
		if old, ok := archives[name]; !ok || !usual(old) && usual(s) {
			archives[name] = s
		}
	}
	return archives, suites
}
