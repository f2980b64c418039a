// Passthrough serves a directory through FUSE and has the kernel read and write its files
// itself. It is for the file system checks, in a guest, and is a program of its own so that
// what its library does at start costs no jail anything.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A fuseNode is a file of a directory that is served through FUSE. The kernel reads and
// writes it by itself (passthrough, since 6.9). The server refuses to do that in the
// kernel's place, so that nothing passes for passthrough that is none.
type fuseNode struct {
	*fs.LoopbackNode
	kept fs.FileHandle // of one that is removed: it has no path any more
}

// devFD is where the caller has /dev/fuse.
const devFD = 3

func main() {
	err := fmt.Errorf("want one directory, got %q", os.Args[1:])
	if len(os.Args) == 2 {
		err = serve(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "passthrough:", err)
		os.Exit(1)
	}
}

// serve answers the kernel until the file system is unmounted. It first prints whether the
// kernel has passthrough.
func serve(source string) error {
	unix.CloseOnExec(devFD)
	unix.Umask(0) // the kernel has taken the caller's into account
	loopback, err := fs.NewLoopbackRoot(source)
	if err != nil {
		return fmt.Errorf("open %s: %w", source, err)
	}
	root := &fuseNode{LoopbackNode: loopback.(*fs.LoopbackNode)}
	root.RootData.RootNode = root
	files := fs.NewNodeFS(root, &fs.Options{NullPermissions: true})
	// One request after the other: nodes have no lock.
	server, err := fuse.NewServer(files, fmt.Sprint("/dev/fd/", devFD),
		&fuse.MountOptions{SingleThreaded: true})
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	fmt.Println(server.KernelSettings().Flags64()&fuse.CAP_PASSTHROUGH != 0)
	server.Serve()
	return nil
}

// WrapChild makes every file below one of ours too.
func (n *fuseNode) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &fuseNode{LoopbackNode: child.(*fs.LoopbackNode)}
}

// Read refuses.
func (n *fuseNode) Read(context.Context, fs.FileHandle, []byte, int64) (fuse.ReadResult,
	syscall.Errno) {
	return nil, syscall.EIO
}

// Write refuses.
func (n *fuseNode) Write(context.Context, fs.FileHandle, []byte, int64) (uint32, syscall.Errno) {
	return 0, syscall.EIO
}

// CopyFileRange refuses in the way that has the kernel copy.
func (n *fuseNode) CopyFileRange(context.Context, fs.FileHandle, uint64, *fs.Inode,
	fs.FileHandle, uint64, uint64, uint64) (uint32, syscall.Errno) {
	return 0, syscall.ENOSYS
}

// Unlink keeps the file, which may be open, within reach.
func (n *fuseNode) Unlink(ctx context.Context, name string) syscall.Errno {
	path := filepath.Join(n.RootData.Path, n.Path(n.Root()), name)
	const flags = unix.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Open(path, flags, 0)
	if child := n.GetChild(name); err == nil && child != nil {
		child.Operations().(*fuseNode).kept = fs.NewLoopbackFile(fd)
	}
	return n.LoopbackNode.Unlink(ctx, name)
}

// Open opens a removed file too, through /proc.
func (n *fuseNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32,
	syscall.Errno) {
	if n.kept == nil {
		return n.LoopbackNode.Open(ctx, flags)
	}
	fd, _ := n.kept.(*fs.LoopbackFile).PassthroughFd()
	again, err := unix.Open(fmt.Sprint("/proc/self/fd/", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	return fs.NewLoopbackFile(again), 0, 0
}

// Setattr changes a removed file too, through what was kept.
func (n *fuseNode) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn,
	out *fuse.AttrOut) syscall.Errno {
	if f == nil {
		f = n.kept
	}
	return n.LoopbackNode.Setattr(ctx, f, in, out)
}

// OnForget is when the kernel has no use for the file any more.
func (n *fuseNode) OnForget() {
	if n.kept != nil {
		n.kept.(*fs.LoopbackFile).Release(context.Background())
	}
}
