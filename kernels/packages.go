package kernels

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// packageName is a name of a Debian or Ubuntu package, perhaps with a colon and the
// one file of it, or folder, that is wanted.
var packageName = lazily(`^[a-z0-9][a-z0-9+.-]+(:[^/\s][^\s]*)?$`)

// wanted are the packages by name: the files or folders that are wanted; none: all.
type wanted map[string][]string

func parsePackageNames(names []string) (wanted, error) {
	w := wanted{}
	for _, name := range names {
		if !packageName().MatchString(name) {
			return nil, fmt.Errorf("%q is neither a package nor PACKAGE:PATH, as in "+
				"git:usr/bin/git", name)
		}
		name, path, _ := strings.Cut(name, ":")
		all, known := w[name]
		if path == "" || known && all == nil {
			w[name] = nil
		} else {
			w[name] = append(all, merged(path))
		}
	}
	return w, nil
}

// keep reports whether a package's file was asked for.
func (w wanted) keep(name, file string) bool {
	paths, ok := w[name]
	if !ok || paths == nil {
		return ok && !useless().MatchString(file)
	}
	return slices.ContainsFunc(paths, func(p string) bool {
		return file == p || strings.HasPrefix(file, strings.TrimSuffix(p, "/")+"/")
	})
}

// Packages makes sure that the cache has a folder with the files of the named
// packages, and returns its path. Of the packages that these depend on it has the
// shared libraries alone: name one to have it whole. Nothing is installed, root is not
// needed, and what this machine has installed makes no difference.
func Packages(ctx context.Context, names []string, opts Options) (string, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	w, err := parsePackageNames(names)
	if err != nil {
		return "", err
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", errors.New("apt-get is not installed: packages can be had from Debian's and " +
			"Ubuntu's archives only")
	}
	c, err := openCache(opts.Cache)
	if err != nil {
		return "", err
	}
	c.dir = filepath.Join(filepath.Dir(c.dir), "packages")
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return "", fmt.Errorf("make package cache: %w", err)
	}
	sum := sha256.Sum256([]byte(arch() + "\n" + strings.Join(names, "\n")))
	name := hex.EncodeToString(sum[:16])
	err = c.create(ctx, name, func(dir string) (entry, error) {
		e := entry{Source: "apt " + strings.Join(names, " ")}
		return e, fillTree(ctx, filepath.Join(dir, "tree"), w, opts)
	})
	if err != nil {
		return "", fmt.Errorf("get packages %s: %w", strings.Join(names, ","), err)
	}
	return filepath.Join(c.dir, name, "tree"), nil
}

// fillTree downloads packages and what they depend on, and unpacks them.
func fillTree(ctx context.Context, tree string, w wanted, opts Options) error {
	tmp, err := os.MkdirTemp(filepath.Dir(tree), "deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	debs, err := downloadAll(ctx, tmp, slices.Sorted(maps.Keys(w)), opts)
	if err != nil {
		return err
	}
	libraries := map[string]bool{}
	for _, deb := range debs {
		name, _, _ := strings.Cut(filepath.Base(deb), "_")
		keep := func(file string) bool {
			if w.keep(name, file) {
				return true
			}
			if isLibrary(file) {
				libraries[file] = true
			}
			return libraries[file]
		}
		if err := readDeb(ctx, deb, func(data io.Reader) error {
			return walkTar(data, archiveLimits, func(h *tar.Header, r io.Reader) error {
				return unpackEntry(root, h, r, keep)
			})
		}); err != nil {
			return err
		}
	}
	return pruneLibraries(root, libraries)
}

// downloadAll lets apt find out what names need on a machine that has nothing, and
// returns the packages' files.
func downloadAll(ctx context.Context, dir string, names []string, opts Options) ([]string, error) {
	for _, sub := range []string{"cache/archives/partial", "state"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	status := filepath.Join(dir, "status")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return nil, err
	}
	a := apt{opts: opts}
	ok, err := a.hasLists(ctx)
	if err != nil {
		return nil, err
	}
	if !ok {
		if err := a.update(ctx); err != nil {
			return nil, err
		}
	}
	opts.logf("packages: downloading %s and what they need", strings.Join(names, " "))
	args := []string{"install", "--download-only", "--yes", "--no-install-recommends", "-q",
		"-o", "Dir::State::status=" + status, "-o", "Dir::Cache=" + filepath.Join(dir, "cache"),
		"-o", "Dir::State::extended_states=" + filepath.Join(dir, "state/extended"),
		"-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root",
		"-o", "APT::Get::AllowUnauthenticated=0"}
	if _, err := a.run(ctx, "apt-get", append(args, names...)...); err != nil {
		if updateErr := a.update(ctx); updateErr != nil {
			return nil, err
		}
		if _, err := a.run(ctx, "apt-get", append(args, names...)...); err != nil {
			return nil, err
		}
	}
	debs, err := filepath.Glob(filepath.Join(dir, "cache/archives/*.deb"))
	if err == nil && len(debs) == 0 {
		err = errors.New("apt-get downloaded nothing")
	}
	return debs, err
}

// libraryDirs is where the loader looks.
var libraryDirs = lazily(`^usr/lib(32|64|x32)?(/[a-z0-9_]+-linux-[a-z0-9_]+)?$`)

// isLibrary reports whether a path is one of a shared library, also of the loader.
func isLibrary(name string) bool {
	base := path.Base(name)
	return libraryDirs().MatchString(path.Dir(name)) &&
		(strings.HasSuffix(base, ".so") || strings.Contains(base, ".so."))
}

// pruneLibraries removes those of the libraries that nothing in the tree needs.
func pruneLibraries(root *os.Root, libraries map[string]bool) error {
	byName := map[string][]string{} // in more than one folder, the loader
	var todo []string
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
		case libraries[name]:
			base := path.Base(name)
			byName[base] = append(byName[base], name)
		default:
			todo = append(todo, name)
		}
		return err
	})
	if err != nil {
		return err
	}
	// The loader, and what the C library opens by itself when a thread is cancelled.
	needed := map[string]bool{}
	for base, names := range byName {
		if strings.HasPrefix(base, "ld-") || base == "libgcc_s.so.1" {
			todo = append(todo, names...)
		}
	}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if needed[name] {
			continue
		}
		needed[name] = true
		for _, base := range needs(root, name) {
			todo = append(todo, byName[base]...)
		}
	}
	for name := range libraries {
		if needed[name] {
			continue
		}
		if err := root.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// needs are the names of the libraries that a file needs, or of what it links to.
func needs(root *os.Root, name string) []string {
	if target, err := root.Readlink(name); err == nil {
		return []string{path.Base(target)}
	}
	f, err := root.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	program, err := elf.NewFile(f)
	if err != nil {
		return nil // a script, data
	}
	names, err := program.ImportedLibraries()
	if err != nil {
		return nil
	}
	return names
}

// useless is what a guest that runs commands does not look at.
var useless = lazily(`^(usr/share/(doc|doc-base|man|locale|info|lintian|bug)/|` +
	`usr/lib/debug/|usr/include/)`)

// merged is where a file is since /bin, /sbin and /lib are links into /usr.
func merged(name string) string {
	first, _, _ := strings.Cut(name, "/")
	switch first {
	case "bin", "sbin", "lib", "lib32", "lib64", "libx32":
		return "usr/" + name
	}
	return name
}

// unpackEntry writes one entry of a package. Owners and device nodes stay behind.
func unpackEntry(root *os.Root, h *tar.Header, r io.Reader, keep func(name string) bool) error {
	name := merged(path.Clean(h.Name))
	if h.Typeflag == tar.TypeDir || !keep(name) {
		return nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL,
			os.FileMode(h.Mode).Perm()|0o400)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(merged(path.Clean(h.Linkname)), name)
	}
	return nil
}
