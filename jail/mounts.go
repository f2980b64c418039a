package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is a line of /proc/PID/mountinfo.
type mount struct {
	id    uint64
	dev   uint32 // as the kernel encodes it in super_block.s_dev
	root  string // the mounted directory within its file system
	point string
}

func readMounts(path string) ([]mount, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the jail's mounts: %w", err)
	}
	var mounts []mount
	for line := range strings.Lines(string(data)) {
		m, err := parseMount(line)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

func parseMount(line string) (mount, error) {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return mount{}, fmt.Errorf("read the jail's mounts: unexpected line %q", line)
	}
	id, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil {
		return mount{}, fmt.Errorf("read the jail's mounts: number: %w", err)
	}
	first, second, _ := strings.Cut(fields[2], ":")
	major, err := strconv.ParseUint(first, 10, 32)
	minor, err2 := strconv.ParseUint(second, 10, 32)
	if err := errors.Join(err, err2); err != nil {
		return mount{}, fmt.Errorf("read the jail's mounts: device: %w", err)
	}
	const minorBits = 20 // include/linux/kdev_t.h
	return mount{
		id: id, dev: uint32(major<<minorBits | minor), root: unescape(fields[3]),
		point: unescape(fields[4]),
	}, nil
}

// is reports whether an open directory or file lies on the mount.
func (m mount) is(fd int) bool {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	return err == nil && st.Mask&unix.STATX_MNT_ID != 0 && st.Mnt_id == m.id
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// visiblePath turns a path within a file system into one that the jail's
// mounts show: through the mount with the longest fitting root.
func (r *rules) visiblePath(dev uint32, path string) string {
	best, bestLen := path, -1
	for _, m := range r.mounts {
		if m.dev != dev || len(m.root) <= bestLen {
			continue
		}
		rest, ok := strings.CutPrefix(path, strings.TrimSuffix(m.root, "/"))
		if ok && (rest == "" || rest[0] == '/') {
			best, bestLen = filepath.Join(m.point, rest), len(m.root)
		}
	}
	return best
}
