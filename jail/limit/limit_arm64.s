#include "textflag.h"

#define SYS_prlimit64 261
#define RLIMIT_NOFILE 7

// func getDescriptors(limit *uint64)
TEXT ·getDescriptors(SB), NOSPLIT, $0-8
	MOVD	$0, R0	// of this process
	MOVD	$RLIMIT_NOFILE, R1
	MOVD	$0, R2	// do not change it
	MOVD	limit+0(FP), R3
	MOVD	$SYS_prlimit64, R8
	SVC
	RET
