package adversary

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// snapshot describes everything below the given directories by which a change
// can be seen: one line for each object. Access times are left out.
func snapshot(roots []string) map[string]string {
	state := map[string]string{}
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				state[path] = err.Error()
				return nil
			}
			state[path] = describe(path)
			return nil
		})
	}
	return state
}

// describe writes down what an object is.
func describe(path string) string {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err.Error()
	}
	d := []string{
		fmt.Sprintf("ino=%d", st.Ino), fmt.Sprintf("mode=%o", st.Mode),
		fmt.Sprintf("nlink=%d", st.Nlink), fmt.Sprintf("uid=%d", st.Uid),
		fmt.Sprintf("gid=%d", st.Gid), fmt.Sprintf("size=%d", st.Size),
		fmt.Sprintf("mtime=%d.%d", st.Mtim.Sec, st.Mtim.Nsec),
		fmt.Sprintf("ctime=%d.%d", st.Ctim.Sec, st.Ctim.Nsec),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		d = append(d, "content="+digest(path, st.Size))
	case unix.S_IFLNK:
		target, _ := os.Readlink(path)
		return strings.Join(append(d, "target="+target), " ")
	}
	return strings.Join(append(d, "xattr="+xattrs(path)), " ")
}

// digest is a hash of a small file. Large ones are sparse, for their size only.
func digest(path string, size int64) string {
	if size > 1<<20 {
		return "large"
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "unreadable"
	}
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%x", sum[:8])
}

// xattrs lists names and values of the extended attributes, ACLs included.
func xattrs(path string) string {
	var names, value [4096]byte
	n, err := unix.Llistxattr(path, names[:])
	if err != nil || n == 0 {
		return ""
	}
	var all []string
	for name := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		v, _ := unix.Lgetxattr(path, name, value[:])
		all = append(all, fmt.Sprintf("%s:%x", name, value[:max(v, 0)]))
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// difference says in words what changed from before to after, or "". What
// happened to an object is told before what follows from it: a directory's times.
func difference(before, after map[string]string) string {
	var gone, differ, created, times []string
	for _, path := range slices.Sorted(maps.Keys(before)) {
		name := filepath.Base(path)
		now, ok := after[path]
		if !ok {
			gone = append(gone, name+" is gone")
		} else if now != before[path] {
			fields, stamps := changedFields(before[path], now)
			if len(fields) > 0 {
				differ = append(differ, name+": "+strings.Join(fields, ", "))
			} else {
				times = append(times, name+": "+strings.Join(stamps, ", "))
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[path]; !ok {
			created = append(created, filepath.Base(path)+" was created")
		}
	}
	if all := slices.Concat(gone, created, differ, times); len(all) > 0 {
		return all[0]
	}
	return ""
}

// changedFields returns the fields of two descriptions that differ, the times apart.
func changedFields(before, after string) (fields, times []string) {
	was, is := strings.Fields(before), strings.Fields(after)
	for i := range min(len(was), len(is)) {
		if was[i] == is[i] {
			continue
		}
		key, value, _ := strings.Cut(is[i], "=")
		_, old, _ := strings.Cut(was[i], "=")
		text := fmt.Sprintf("%s %.24s -> %.24s", key, old, value)
		if strings.HasSuffix(key, "time") {
			times = append(times, key+" changed")
		} else {
			fields = append(fields, text)
		}
	}
	if len(was) != len(is) {
		fields = append(fields, fmt.Sprintf("%.60s -> %.60s", before, after))
	}
	return fields, times
}
