package vmtest

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/u-root/pkg/cpio"
)

// build writes an initramfs for a made-up binary and returns its bytes.
func build(t *testing.T, binary []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	bin, file := filepath.Join(dir, "bin"), filepath.Join(dir, "file")
	for path, data := range map[string][]byte{bin: binary, file: []byte("text")} {
		if err := os.WriteFile(path, data, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	base, err := baseArchive(dir, bin)
	if err != nil {
		t.Fatalf("baseArchive = %v", err)
	}
	recs, err := runRecords(plan{Nonce: "00", Steps: []Step{{Name: "s", Argv: []string{"true"}}}},
		[]File{{Host: file, Guest: "/opt/../etc/file"}})
	if err != nil {
		t.Fatalf("runRecords = %v", err)
	}
	out := filepath.Join(dir, "out.cpio")
	if err := writeInitramfs(out, base, recs); err != nil {
		t.Fatalf("writeInitramfs = %v", err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestInitramfsIsReproducible(t *testing.T) {
	binary := []byte("a binary of 23 bytes..")
	first, second := build(t, binary), build(t, binary)
	if !bytes.Equal(first, second) {
		t.Error("two builds of the same initramfs differ")
	}
	if bytes.Equal(first, build(t, []byte("another"))) {
		t.Error("the initramfs does not depend on the binary")
	}
}

func TestInitramfsContent(t *testing.T) {
	data := build(t, []byte("binary"))
	// Two archives in a row: a reader stops at the first one's trailer.
	r := bytes.NewReader(data)
	var got []string
	for range 2 {
		recs, err := cpio.ReadAllRecords(cpio.Newc.Reader(r))
		if err != nil {
			t.Fatalf("ReadAllRecords = %v", err)
		}
		for _, rec := range recs {
			got = append(got, rec.Name)
			if rec.Mode&0o022 != 0 && rec.Name != "dev/null" {
				t.Errorf("%s has mode %o, want it not writable by others", rec.Name, rec.Mode)
			}
		}
		at := bytes.Index(data, []byte(cpio.Trailer)) + len(cpio.Trailer)
		data = bytes.TrimLeft(data[at:], "\x00")
		r = bytes.NewReader(data)
	}
	want := []string{"dev", "dev/console", "dev/null", "init", "files", "files/0", "plan.json"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names in the initramfs (-want +got):\n%s", diff)
	}
}

func TestRunRecordsRefusesRelativePath(t *testing.T) {
	_, err := runRecords(plan{}, []File{{Host: os.DevNull, Guest: "etc/x"}})
	if err == nil {
		t.Error("runRecords with a relative guest path = nil, want an error")
	}
}

func TestPruneBases(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
		path := filepath.Join(dir, name+".cpio")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		used := now.Add(-time.Duration(i) * time.Hour)
		if err := os.Chtimes(path, used, used); err != nil {
			t.Fatal(err)
		}
	}
	if err := pruneBases(dir); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if diff := cmp.Diff([]string{"a.cpio", "b.cpio", "c.cpio", "d.cpio"}, left); diff != "" {
		t.Errorf("archives left (-want +got):\n%s", diff)
	}
}

func TestCheckStatic(t *testing.T) {
	if err := checkStatic("initramfs_test.go", elf.EM_X86_64); err == nil {
		t.Error("checkStatic of a text file = nil, want an error")
	}
}
