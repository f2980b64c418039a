#include "textflag.h"

// func cloneOpen(number, a, b, path uintptr, result *int64) int64
//
// The child shares our memory and so this stack, which it must not write to: it
// opens the file, stores what came of it, and ends. We sleep meanwhile (CLONE_VFORK).
TEXT ·cloneOpen(SB),NOSPLIT,$0-48
	MOVQ number+0(FP), AX
	MOVQ a+8(FP), DI
	MOVQ b+16(FP), SI
	MOVQ path+24(FP), R12
	MOVQ result+32(FP), R13
	MOVQ $0, DX
	MOVQ $0, R10
	MOVQ $0, R8
	SYSCALL
	CMPQ AX, $0
	JNE  parent
	MOVQ $2, AX
	MOVQ R12, DI
	MOVQ $0x80000, SI
	MOVQ $0, DX
	SYSCALL
	MOVQ AX, (R13)
	MOVQ $60, AX
	MOVQ $0, DI
	SYSCALL
	INT  $3

parent:
	MOVQ AX, ret+40(FP)
	RET

// func cloneIdle(flags uintptr) int64
//
// The child has our stack, at the same time as we, and therefore touches none.
TEXT ·cloneIdle(SB),NOSPLIT,$0-16
	MOVQ flags+0(FP), DI
	MOVQ $56, AX // clone
	MOVQ $0, SI
	MOVQ $0, DX
	MOVQ $0, R10
	MOVQ $0, R8
	SYSCALL
	CMPQ AX, $0
	JNE  parent

idle:
	MOVQ $34, AX // pause
	SYSCALL
	JMP  idle

parent:
	MOVQ AX, ret+8(FP)
	RET
