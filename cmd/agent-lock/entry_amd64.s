#include "textflag.h"

#define SYS_close 3
#define SYS_fcntl 72
#define F_DUPFD_CLOEXEC 1030

// The program's entry (-ldflags -E): before there is a second thread, the table of
// descriptors grows to what a start needs. Later the kernel would wait, for longer than
// the rest of a start takes, until no processor reads the old one (expand_fdtable in
// fs/file.c). A build without it works as well.
TEXT agentlock_entry(SB), NOSPLIT|NOFRAME, $0
	MOVL	$0, DI
	MOVL	$F_DUPFD_CLOEXEC, SI
	MOVL	$511, DX
	MOVL	$SYS_fcntl, AX
	SYSCALL
	CMPQ	AX, $0xfffffffffffff001
	JCC	start
	MOVQ	AX, DI
	MOVL	$SYS_close, AX
	SYSCALL
start:
	JMP	_rt0_amd64_linux(SB)
