package bpf

// The objects depend on the architecture only through the calling convention
// that bpf_tracing.h hides; both are committed so that go build needs no clang.
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target amd64,arm64 -output-stem jail -type right -type jail_flag -type hook -type label -type jail -type event -type overlay -type slot_overlays -type overlay_layout -type descriptor -type entry -type place -type name_key -type name_rule -type name_kind -type owner -type network -type network_mode -type local_range -type peer -type why jail jail.bpf.c -- -O2 -Wall -Werror -mcpu=v3

// The sums of both objects, so that a start need not read all of one.
//go:generate go test -count=1 -run ^TestObjectSums$ . -update
