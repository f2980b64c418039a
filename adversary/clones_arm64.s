#include "textflag.h"

// func cloneOpen(number, a, b, path uintptr, result *int64) int64
//
// As in clones_amd64.s: the child shares our memory and so this stack, which it must not
// write to.
TEXT ·cloneOpen(SB),NOSPLIT,$0-48
	MOVD number+0(FP), R8
	MOVD a+8(FP), R0
	MOVD b+16(FP), R1
	MOVD path+24(FP), R9
	MOVD result+32(FP), R10
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	SVC
	CBNZ R0, parent
	MOVD $56, R8 // openat
	MOVD $-100, R0
	MOVD R9, R1
	MOVD $0x80000, R2
	MOVD $0, R3
	SVC
	MOVD R0, (R10)
	MOVD $93, R8 // exit
	MOVD $0, R0
	SVC
	BRK

parent:
	MOVD R0, ret+40(FP)
	RET

// func cloneIdle(flags uintptr) int64
//
// The child has our stack, at the same time as we, and therefore touches none.
TEXT ·cloneIdle(SB),NOSPLIT,$0-16
	MOVD flags+0(FP), R0
	MOVD $220, R8 // clone
	MOVD $0, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	SVC
	CBNZ R0, parent

idle:
	MOVD $73, R8 // ppoll, without an end
	MOVD $0, R0
	MOVD $0, R1
	MOVD $0, R2
	MOVD $0, R3
	SVC
	B    idle

parent:
	MOVD R0, ret+8(FP)
	RET
