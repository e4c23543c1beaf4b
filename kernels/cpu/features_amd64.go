package cpu

import "golang.org/x/sys/cpu"

// hasAVX512 says whether processor and kernel have the AVX-512 that the kernels use.
func hasAVX512() bool {
	return cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512BW
}

// hasAVX512BF16 says whether there are products of pairs of bf16 beside.
func hasAVX512BF16() bool { return cpu.X86.HasAVX512BF16 }

// hasAVX2 says whether there are AVX2 and fused multiply-add.
func hasAVX2() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA }
