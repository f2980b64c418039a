//go:build !amd64

package adversary

import "errors"

var errAMD64 = errors.New("this attack is written for x86-64 only")

func call32(int, uint32, uint32, uint32) (int, error) { return -1, errAMD64 }

func low([]byte) (uint32, error) { return 0, errAMD64 }

func openInClone(uintptr, uintptr, uintptr, string) ([]byte, error) { return nil, errAMD64 }

func clone3Open(uint64, string) ([]byte, error) { return nil, errAMD64 }
