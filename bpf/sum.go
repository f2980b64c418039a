package bpf

import "runtime"

// objectSum tells objects apart: the beginning of the SHA-256 of this machine's.
func objectSum() string {
	if runtime.GOARCH == "arm64" {
		return sumARM64
	}
	return sumAMD64
}
