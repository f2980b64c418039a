package kernels

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Offsets in the setup header of a bzImage (Documentation/arch/x86/boot.rst).
const (
	offSetupSects    = 0x1f1 // u8: 512-byte sectors of real-mode code after the first
	offHeaderMagic   = 0x202 // "HdrS"
	offProtocol      = 0x206 // u16: boot protocol; payload_* since 2.08
	offKernelVersion = 0x20e // u16: version string, relative to 0x200
	offPayloadOffset = 0x248 // u32: relative to the end of the real-mode code
	offPayloadLength = 0x24c // u32: including 4 bytes of uncompressed size at its end
	headerSize       = 0x250
)

// maxVMLinux bounds what a payload may unpack to: distribution kernels are below 100 MiB.
const maxVMLinux = 512 << 20

// image is what can be read off a kernel image without running it.
type image struct {
	elf     bool
	arch    string // AMD64 or ARM64
	release string // uname -r; empty: unknown
	version string // upstream version; empty: unknown
	sha256  string
}

// inspect reads a bzImage, an ELF vmlinux of x86-64, or an Image of arm64.
func inspect(path string) (image, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return image{}, fmt.Errorf("read kernel image: %w", err)
	}
	sum := sha256.Sum256(data)
	img := image{sha256: hex.EncodeToString(sum[:]), arch: AMD64}
	var banner string
	switch {
	case isBzImage(data):
		at := 0x200 + int(binary.LittleEndian.Uint16(data[offKernelVersion:]))
		if at > 0x200 && at < len(data) {
			text, _, _ := bytes.Cut(data[at:min(len(data), at+512)], []byte{0})
			banner = string(text)
		}
	case bytes.HasPrefix(data, []byte(elf.ELFMAG)):
		img.elf = true
		banner = bannerIn(data)
	case isImage(data), isZboot(data):
		img.arch = ARM64
		plain, err := unpackImage(context.Background(), data)
		if err != nil {
			return image{}, fmt.Errorf("%s: %w", path, err)
		}
		banner = bannerIn(plain)
	default:
		return image{}, fmt.Errorf("%s is neither a bzImage, nor an ELF vmlinux, nor an Image of "+
			"arm64", path)
	}
	img.release, img.version = parseBanner(banner)
	return img, nil
}

// bannerIn finds the text after "Linux version" in a kernel that is not compressed.
func bannerIn(data []byte) string {
	const mark = "Linux version "
	at := bytes.Index(data, []byte(mark))
	if at < 0 {
		return ""
	}
	text, _, _ := bytes.Cut(data[at+len(mark):min(len(data), at+512)], []byte{0})
	return string(text)
}

var debianVersion = lazily(`\bDebian ([0-9]+\.[0-9]+\.[0-9]+)`)

// parseBanner reads the release and the upstream version off the text that
// follows "Linux version". Debian names the stable release only at its end.
func parseBanner(banner string) (release, version string) {
	release, _, _ = strings.Cut(banner, " ")
	if !versionRE().MatchString(release) {
		return "", ""
	}
	if m := debianVersion().FindStringSubmatch(banner); m != nil {
		return release, m[1]
	}
	return release, release
}

func isBzImage(data []byte) bool {
	return len(data) > headerSize && string(data[offHeaderMagic:offHeaderMagic+4]) == "HdrS"
}

// extract unpacks the ELF vmlinux in the bzImage at path into dir/vmlinux, and
// the configuration in it, if any, into dir/config when that is not there yet. It
// fails, leaving no vmlinux, when QEMU could not start that ELF.
func extract(ctx context.Context, path, dir string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read kernel image: %w", err)
	}
	if isImage(data) || isZboot(data) {
		return extractImage(ctx, data, dir)
	}
	packed, err := payload(data)
	if err != nil {
		return err
	}
	vmlinux, err := unpack(ctx, packed)
	if err != nil {
		return fmt.Errorf("unpack kernel payload: %w", err)
	}
	if err := keepConfig(vmlinux, dir); err != nil {
		return err
	}
	if err := checkPVH(bytes.NewReader(vmlinux)); err != nil {
		return err
	}
	out := filepath.Join(dir, "vmlinux")
	if err := os.WriteFile(out, vmlinux, 0o644); err != nil {
		return errors.Join(err, os.Remove(out))
	}
	return nil
}

// payload cuts the compressed kernel out of a bzImage.
func payload(data []byte) ([]byte, error) {
	if !isBzImage(data) {
		return nil, errors.New("kernel image is no bzImage")
	}
	le := binary.LittleEndian
	if v := le.Uint16(data[offProtocol:]); v < 0x208 {
		return nil, fmt.Errorf("boot protocol %#x has no payload fields, want at least 0x208", v)
	}
	sects := int(data[offSetupSects])
	if sects == 0 {
		sects = 4
	}
	start := uint64(sects+1)*512 + uint64(le.Uint32(data[offPayloadOffset:]))
	end := start + uint64(le.Uint32(data[offPayloadLength:]))
	if start+4 > end || end > uint64(len(data)) {
		return nil, fmt.Errorf("kernel payload [%d, %d) is outside the image of %d bytes",
			start, end, len(data))
	}
	return data[start:end], nil
}

// unpack decompresses a payload.
func unpack(ctx context.Context, packed []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := openPayload(ctx, packed)
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(&cappedReader{r, maxVMLinux})
	if errors.Is(err, errTooLarge) {
		cancel() // so that Close does not wait for a command that waits for us
		r.Close()
		return nil, err
	}
	if err := errors.Join(r.Close(), err); err != nil {
		return nil, err
	}
	return out, nil
}

// openPayload reads a payload as what it is compressed with says. All formats
// but gzip (whose own trailer is the same thing) are followed by four bytes of
// uncompressed size.
func openPayload(ctx context.Context, packed []byte) (io.ReadCloser, error) {
	body := bytes.NewReader(packed[:len(packed)-4])
	switch {
	case bytes.HasPrefix(packed, []byte{0x1f, 0x8b}):
		gz, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		gz.Multistream(false)
		return gz, nil
	case bytes.HasPrefix(packed, []byte{0x02, 0x21, 0x4c, 0x18}):
		return io.NopCloser(lz4.NewReader(body)), nil
	case bytes.HasPrefix(packed, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		zr, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxMemory(maxVMLinux))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return zr.IOReadCloser(), nil
	case bytes.HasPrefix(packed, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		// Kernels use the x86 filter, which no pure Go decoder knows.
		return decompress(ctx, ".xz", body)
	case bytes.HasPrefix(packed, []byte(elf.ELFMAG)):
		return io.NopCloser(body), nil
	}
	return nil, fmt.Errorf("unknown format (starts with % x)", packed[:4])
}
