package kernels

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Offsets in the header of arm64's Image (Documentation/arch/arm64/booting.rst), and in that
// of an EFI program with a compressed one in it
// (drivers/firmware/efi/libstub/zboot-header.S, since Linux 6.1).
const (
	offImageMagic = 0x38 // "ARM\x64"
	imageHeader   = 0x40

	offZbootMagic  = 0x04 // "zimg", after "MZ"
	offZbootOffset = 0x08 // u32
	offZbootLength = 0x0c // u32: without the uncompressed size that may follow
	zbootHeader    = 0x40
)

func isImage(data []byte) bool {
	return len(data) > imageHeader && string(data[offImageMagic:imageHeader-4]) == "ARM\x64"
}

func isZboot(data []byte) bool {
	return len(data) > zbootHeader && string(data[:2]) == "MZ" &&
		string(data[offZbootMagic:offZbootMagic+4]) == "zimg"
}

// unpackImage returns the Image in what a package for arm64 has as its kernel: itself,
// or what an EFI program unpacks, which QEMU could not start before its version 8.0.
func unpackImage(ctx context.Context, data []byte) ([]byte, error) {
	if isImage(data) {
		return data, nil
	}
	if !isZboot(data) {
		return nil, errors.New("kernel image is none for arm64")
	}
	start := uint64(binary.LittleEndian.Uint32(data[offZbootOffset:]))
	end := start + uint64(binary.LittleEndian.Uint32(data[offZbootLength:]))
	if start+4 > end || end > uint64(len(data)) {
		return nil, fmt.Errorf("kernel payload [%d, %d) is outside the image of %d bytes",
			start, end, len(data))
	}
	// A bzImage's payload ends with its size.
	packed := append(bytes.Clone(data[start:end]), 0, 0, 0, 0)
	image, err := unpack(ctx, packed)
	if err != nil {
		return nil, fmt.Errorf("unpack kernel payload: %w", err)
	}
	if !isImage(image) {
		return nil, errors.New("what the kernel image unpacks to is no Image for arm64")
	}
	return image, nil
}

// extractImage unpacks the Image in what is at path into dir/vmlinux, unless it is one.
func extractImage(ctx context.Context, data []byte, dir string) error {
	image, err := unpackImage(ctx, data)
	if err != nil {
		return err
	}
	if err := keepConfig(image, dir); err != nil || isImage(data) {
		return err
	}
	out := filepath.Join(dir, "vmlinux")
	if err := os.WriteFile(out, image, 0o644); err != nil {
		return errors.Join(err, os.Remove(out))
	}
	return nil
}
