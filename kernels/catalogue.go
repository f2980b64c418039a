package kernels

import (
	_ "embed" // the catalogue is a data file
	"encoding/json"
	"fmt"
	"regexp"
	"sync"
)

//go:embed catalogue.json
var catalogueJSON []byte

// Series is a kernel series of the catalogue. Others can be asked for as well.
type Series struct {
	Name   string `json:"series"`
	Prefer string `json:"prefer"` // the source to ask first, after the package manager
	Note   string `json:"note"`
}

// suite is a suite of one of Debian's archives.
type suite struct {
	Name    string `json:"name"`
	Archive string `json:"archive"` // "main", "security"
}

// catalogue returns the content of catalogue.json. Like the patterns it is made when
// it is first used, since every process of a jail would pay for it otherwise.
var catalogue = sync.OnceValue(func() (c struct {
	Suites []suite  `json:"suites"`
	Series []Series `json:"series"`
}) {
	if err := json.Unmarshal(catalogueJSON, &c); err != nil {
		panic(fmt.Sprintf("kernels: catalogue.json: %v", err)) // a test has read it
	}
	return c
})

// lazily compiles a pattern when it is first used.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// Catalogue returns the series that are known to be of use, oldest first.
func Catalogue() []Series { return append([]Series(nil), catalogue().Series...) }

// prefer is the source to ask first for a series.
func prefer(series string) string {
	for _, s := range catalogue().Series {
		if s.Name == series {
			return s.Prefer
		}
	}
	return schemeDebian
}
