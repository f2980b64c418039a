#include "textflag.h"

#define SYS_getrlimit 97
#define RLIMIT_NOFILE 7

// func getDescriptors(limit *uint64)
TEXT ·getDescriptors(SB), NOSPLIT, $0-8
	MOVL	$RLIMIT_NOFILE, DI
	MOVQ	limit+0(FP), SI
	MOVL	$SYS_getrlimit, AX
	SYSCALL
	RET
