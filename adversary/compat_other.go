//go:build !amd64

package adversary

func call32(int, uint32, uint32, uint32) (int, error) { return -1, errAMD64 }

func low([]byte) (uint32, error) { return 0, errAMD64 }

func creat(string) (int, error) { return -1, errAMD64 }
