// What the kernels need of CUDA, without NVIDIA's headers: clang compiles them to PTX
// with nothing installed beside it. ../emulation/emulation.h offers the same on the host.
#pragma once

// KERNEL(name, threads, parameters...) { body }: a kernel that is launched with at most so many threads in
// a block. KERNEL_SHARING says besides how many blocks a multiprocessor's registers must suffice for.
#define KERNEL(name, threads, ...) KERNEL_SHARING(name, threads, 1, __VA_ARGS__)
#define KERNEL_SHARING(name, threads, blocks, ...) \
  extern "C" __attribute__((global, launch_bounds(threads, blocks))) void name(__VA_ARGS__)
#define DEVICE static inline __attribute__((device, always_inline))
// SHARED(float, tile, [16][17]) is memory of the block, undefined at first.
#define SHARED(type, name, dims) __attribute__((shared, aligned(16))) type name dims
// DYNAMIC_SHARED(type, name) points to memory of the block, of the size given at the launch.
#define DYNAMIC_SHARED(type, name)                                    \
  extern __attribute__((shared, aligned(128))) char dynamic_shared[]; \
  type* name = (type*)dynamic_shared
// INLINE stands between the parameters and the body of a lambda.
#define INLINE __attribute__((always_inline))
#define UNROLL _Pragma("unroll")
#define NOUNROLL _Pragma("nounroll")
#define UNROLL4 _Pragma("unroll 4")
#define UNROLL2 _Pragma("unroll 2")

DEVICE int thread() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE int threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE int block_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE int block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE int blocks_x() { return __nvvm_read_ptx_sreg_nctaid_x(); }

// All threads of the block must arrive; what they wrote before is then seen by all.
DEVICE void barrier() { __syncthreads(); }
// A barrier of the warp's 32 lanes.
DEVICE void warp_sync() { __nvvm_bar_warp_sync(0xffffffff); }
// The value of the lane whose number differs in the bits of mask. All 32 lanes take part.
DEVICE float shuffle_xor(float v, int mask) { return __nvvm_shfl_sync_bfly_f32(0xffffffff, v, mask, 31); }

// The special function unit's 2^x, log2 and 1/x: relative error 2^-22, for log2 of (0.5, 2) absolute,
// for 1/x 2^-23.
DEVICE float exp2_approx(float x) { return __nvvm_ex2_approx_ftz_f(x); }
DEVICE float log2_approx(float x) { return __nvvm_lg2_approx_f(x); }
DEVICE float reciprocal_approx(float x) { return __nvvm_rcp_approx_ftz_f(x); }
DEVICE float as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
// Two floats rounded to nearest even, the first in the lower half.
DEVICE unsigned round_bf16x2(float low, float high) {
  unsigned r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// *p = min(*p, v) over all threads of the grid. Integers only: the order in which
// floats are added would change the result from run to run.
DEVICE void atomic_min(unsigned long long* p, unsigned long long v) {
  asm volatile("red.global.min.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

// Accesses of 8 and 16 bytes at once, aligned to their size.
typedef unsigned Packed2 __attribute__((ext_vector_type(2)));
typedef unsigned Packed4 __attribute__((ext_vector_type(4)));
struct Words2 {
  unsigned v[2];
};
struct Words4 {
  unsigned v[4];
};
DEVICE Words2 load8(const void* p) {
  Packed2 w = *(const Packed2*)p;
  return {{w.x, w.y}};
}
DEVICE Words4 load16(const void* p) {
  Packed4 w = *(const Packed4*)p;
  return {{w.x, w.y, w.z, w.w}};
}
DEVICE void store8(void* p, Words2 w) { *(Packed2*)p = Packed2{w.v[0], w.v[1]}; }
DEVICE void store16(void* p, Words4 w) { *(Packed4*)p = Packed4{w.v[0], w.v[1], w.v[2], w.v[3]}; }

DEVICE unsigned shared_address(const void* p) { return (unsigned)(unsigned long)(const __attribute__((address_space(3))) void*)p; }

// Copies 16 or 4 bytes from device to shared memory while the thread goes on, zeros when
// there is nothing to copy (from is not looked at then, but must be aligned). A thread's copies since its last commit are a group;
// wait<n> waits until at most n of its groups are under way. A barrier shows them to the others.
DEVICE void cp_async16(void* to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
               "l"((const __attribute__((address_space(1))) void*)from), "r"(exists ? 16 : 0)
               : "memory");
}
DEVICE void cp_async4(void* to, const void* from, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
               "l"((const __attribute__((address_space(1))) void*)from), "r"(exists ? 4 : 0)
               : "memory");
}
DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Four 8 × 8 matrices of halves from shared memory: lane 8·i + j names row j of matrix
// i, lane l receives in r[i] columns 2·(l%4) and the next of row l/4, or of the transposed matrix.
DEVICE void ldmatrix4(unsigned* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
DEVICE void ldmatrix4_trans(unsigned* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// c += a·b, a 16 × 16 and b 16 × 8 of bf16, c 16 × 8 of fp32. Lane l, g = l/4, t = l%4:
// c[0], c[1] row g, columns 2t and 2t+1, c[2], c[3] row g + 8; a[0] row g, a[1] row g + 8
// of the same columns, a[2], a[3] 8 columns on; b[0] column g, rows 2t and 2t+1, b[1] 8 rows on.
DEVICE void mma_bf16(float* c, const unsigned* a, const unsigned* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
