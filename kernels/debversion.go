package kernels

import (
	"strings"
)

// compareVersions orders two Debian package versions as dpkg does: by epoch,
// upstream version, revision. It returns a negative number, 0 or a positive one.
func compareVersions(a, b string) int {
	ea, ua, ra := splitVersion(a)
	eb, ub, rb := splitVersion(b)
	for _, pair := range [][2]string{{ea, eb}, {ua, ub}, {ra, rb}} {
		if c := comparePart(pair[0], pair[1]); c != 0 {
			return c
		}
	}
	return 0
}

// splitVersion cuts [epoch:]upstream[-revision].
func splitVersion(v string) (epoch, upstream, revision string) {
	epoch, rest, ok := strings.Cut(v, ":")
	if !ok {
		epoch, rest = "0", v
	}
	if i := strings.LastIndexByte(rest, '-'); i >= 0 {
		return epoch, rest[:i], rest[i+1:]
	}
	return epoch, rest, ""
}

// comparePart compares runs of non-digits and runs of digits in turn.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		for (a != "" && !isDigit(a[0])) || (b != "" && !isDigit(b[0])) {
			if oa, ob := order(a), order(b); oa != ob {
				return oa - ob
			}
			a, b = a[1:], b[1:]
		}
		na, nb := digits(a), digits(b)
		a, b = a[len(na):], b[len(nb):]
		na, nb = strings.TrimLeft(na, "0"), strings.TrimLeft(nb, "0")
		if len(na) != len(nb) {
			return len(na) - len(nb)
		}
		if c := strings.Compare(na, nb); c != 0 {
			return c
		}
	}
	return 0
}

// order is the weight of the first byte of s outside a number: "~" before the
// end (or a digit), then letters, then everything else.
func order(s string) int {
	switch {
	case s == "" || isDigit(s[0]):
		return 0
	case s[0] == '~':
		return -1
	case s[0] >= 'A' && s[0] <= 'Z' || s[0] >= 'a' && s[0] <= 'z':
		return int(s[0])
	}
	return int(s[0]) + 256
}

func digits(s string) string {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return s[:n]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
