package vmtest

import (
	"bufio"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sort"
	"time"

	"github.com/u-root/u-root/pkg/cpio"
)

// The initramfs is two archives, one after the other in one file: a base that
// holds the binary and is cached by its checksum, and a small one with the plan.
// The kernel unpacks them in turn. They are not compressed: unpacking costs the
// guest more than the copy costs the host.
const (
	initPath = "init"      // the binary, in the base archive
	planPath = "plan.json" // the plan, in the per-run archive
)

// keptBases is how many base archives the cache keeps.
const keptBases = 4

// checkStatic refuses a binary for another processor, and one that needs a dynamic loader:
// the guest has none.
func checkStatic(binary string, machine elf.Machine) error {
	f, err := elf.Open(binary)
	if err != nil {
		return fmt.Errorf("read guest binary: %w", err)
	}
	defer f.Close()
	if f.Machine != machine {
		return fmt.Errorf("guest binary %s is for %v, want %v", binary, f.Machine, machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not a static binary; build it with CGO_ENABLED=0", binary)
		}
	}
	return nil
}

// baseRecords describes the base archive: what the kernel needs to start /init
// with a console as its standard streams.
func baseRecords(binary []byte) []cpio.Record {
	recs := []cpio.Record{
		cpio.Directory("dev", 0o755),
		cpio.CharDev("dev/console", 0o600, 5, 1),
		cpio.CharDev("dev/null", 0o666, 1, 3),
		cpio.StaticRecord(binary, cpio.Info{Name: initPath, Mode: cpio.S_IFREG | 0o755}),
	}
	cpio.MakeAllReproducible(recs)
	return recs
}

// runRecords describes the per-run archive.
func runRecords(p plan, files []File) ([]cpio.Record, error) {
	recs := []cpio.Record{cpio.Directory("files", 0o700)}
	for i, f := range files {
		if !path.IsAbs(f.Guest) {
			return nil, fmt.Errorf("guest path %q is not absolute", f.Guest)
		}
		data, err := os.ReadFile(f.Host)
		if err != nil {
			return nil, fmt.Errorf("read file for the guest: %w", err)
		}
		if f.Mode == 0 {
			info, err := os.Stat(f.Host)
			if err != nil {
				return nil, err
			}
			f.Mode = uint32(info.Mode().Perm())
		}
		name := fmt.Sprintf("files/%d", i)
		recs = append(recs, privateRecord(name, data))
		p.Files = append(p.Files, planFile{Archive: name, Guest: path.Clean(f.Guest), Mode: f.Mode})
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	recs = append(recs, privateRecord(planPath, text))
	cpio.MakeAllReproducible(recs)
	return recs, nil
}

func privateRecord(name string, data []byte) cpio.Record {
	return cpio.StaticRecord(data, cpio.Info{Name: name, Mode: cpio.S_IFREG | 0o600})
}

// writeArchive writes recs as they are. (WriteRecordsAndDirs would add a "."
// record of mode 0777, which the kernel applies to the root directory.)
func writeArchive(w io.Writer, recs []cpio.Record) error {
	rw := cpio.Newc.Writer(w)
	if err := cpio.WriteRecords(rw, recs); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	if err := cpio.WriteTrailer(rw); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	return nil
}

// baseArchive returns the path of the cached base archive for binary.
func baseArchive(cacheDir, binary string) (string, error) {
	data, err := os.ReadFile(binary)
	if err != nil {
		return "", fmt.Errorf("read guest binary: %w", err)
	}
	sum := sha256.Sum256(data)
	dir := filepath.Join(cacheDir, "initramfs")
	name := filepath.Join(dir, hex.EncodeToString(sum[:])+".cpio")
	if _, err := os.Stat(name); err == nil {
		now := time.Now()
		return name, os.Chtimes(name, now, now)
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make initramfs cache: %w", err)
	}
	tmp, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	if err := errors.Join(writeArchive(tmp, baseRecords(data)), tmp.Close()); err != nil {
		return "", err
	}
	if err := os.Rename(tmp.Name(), name); err != nil {
		return "", err
	}
	return name, pruneBases(dir)
}

// pruneBases removes all but the archives used last.
func pruneBases(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.cpio"))
	if err != nil {
		return err
	}
	used := make(map[string]time.Time)
	for _, n := range names {
		if info, err := os.Stat(n); err == nil {
			used[n] = info.ModTime()
		}
	}
	sort.Slice(names, func(i, j int) bool { return used[names[i]].After(used[names[j]]) })
	for _, n := range names[min(keptBases, len(names)):] {
		if err := os.Remove(n); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// writeInitramfs puts base and the per-run archive into the new file out.
func writeInitramfs(out, base string, recs []cpio.Record) error {
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	defer f.Close()
	in, err := os.Open(base)
	if err != nil {
		return fmt.Errorf("read base initramfs: %w", err)
	}
	defer in.Close()
	n, err := io.Copy(f, in)
	if err != nil {
		return fmt.Errorf("copy base initramfs: %w", err)
	}
	// Archives start at a multiple of four bytes.
	if _, err := f.Write(make([]byte, (4-n%4)%4)); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	run := bufio.NewWriterSize(f, 1<<20)
	if err := errors.Join(writeArchive(run, recs), run.Flush()); err != nil {
		return err
	}
	return f.Close()
}
