//go:build linux

#include "go_asm.h"
#include "textflag.h"

GLOBL ·callABI0(SB), NOPTR|RODATA, $8
DATA ·callABI0(SB)/8, $callC(SB)

// callC has the calling convention of C: DI is the *call. It keeps BX and R12 for its
// caller, as C does, and the stack aligned to 16 bytes at calls.
TEXT callC(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BP
	MOVQ  SP, BP
	PUSHQ BX
	PUSHQ R12
	SUBQ  $16, SP
	MOVQ  DI, BX

begin:
	MOVQ call_rounds(BX), R12

again:
	MOVQ (call_arg+48)(BX), AX
	MOVQ AX, 0(SP)               // the seventh argument
	MOVQ (call_arg+0)(BX), DI
	MOVQ (call_arg+8)(BX), SI
	MOVQ (call_arg+16)(BX), DX
	MOVQ (call_arg+24)(BX), CX
	MOVQ (call_arg+32)(BX), R8
	MOVQ (call_arg+40)(BX), R9
	MOVQ call_fn(BX), R10
	XORL AX, AX
	CALL R10
	MOVL AX, call_rc(BX)
	TESTL AX, AX
	JNE  out
	CMPB call_until(BX), $0
	JEQ  follow
	CMPL call_done(BX), $0
	JNE  follow
	DECQ R12
	JGT  again

follow:
	MOVQ  call_next(BX), BX
	TESTQ BX, BX
	JNE   begin

out:
	ADDQ $16, SP
	POPQ R12
	POPQ BX
	POPQ BP
	XORL AX, AX
	RET
