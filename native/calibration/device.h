/* What the two vendors write differently. */
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

/* Past the first-level cache: PTX ISA, ld.cg "cache at global level". */
__device__ __forceinline__ float4 load_l2(const float4 *from)
{
	float4 v;
	asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
		     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from));
	return v;
}

/* One fp32 multiply-add an instruction; two of fp16. Both as PTX, so that no header of the toolkit is needed. */
typedef float pair_f32;
typedef unsigned pair_f16;
#define F32_LANES 1
__device__ __forceinline__ pair_f32 pack_f32(float x) { return x; }
__device__ __forceinline__ pair_f16 pack_f16(unsigned bits) { return bits; }
__device__ __forceinline__ pair_f32 multiply_add(pair_f32 x, pair_f32 a, pair_f32 b) { return fmaf(x, a, b); }
__device__ __forceinline__ pair_f16 multiply_add(pair_f16 x, pair_f16 a, pair_f16 b)
{
	asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(x) : "r"(a), "r"(b));
	return x;
}
__device__ __forceinline__ bool is_never(pair_f32 x) { return x == -1.2345e30f; }
__device__ __forceinline__ bool is_never(pair_f16 x) { return x == 0xfbfffbffu; }

#else /* AMD */

/* The first-level cache is far smaller than what goes round, so a plain load passes it. */
__device__ inline float4 load_l2(const float4 *from) { return *from; }

/* Vectors of two: CDNA 2 and later have packed fp32 (v_pk_fma_f32), all have packed fp16. HIP fuses x * a + b. */
typedef float pair_f32 __attribute__((ext_vector_type(2)));
typedef _Float16 pair_f16 __attribute__((ext_vector_type(2)));
#define F32_LANES 2
__device__ inline pair_f32 pack_f32(float x) { return pair_f32{x, x}; }
__device__ inline pair_f16 pack_f16(unsigned bits)
{
	union { unsigned bits; pair_f16 pair; } both = {bits};
	return both.pair;
}
__device__ inline pair_f32 multiply_add(pair_f32 x, pair_f32 a, pair_f32 b) { return x * a + b; }
__device__ inline pair_f16 multiply_add(pair_f16 x, pair_f16 a, pair_f16 b) { return x * a + b; }
__device__ inline bool is_never(pair_f32 x) { return x.x == -1.2345e30f && x.y == -1.2345e30f; }
__device__ inline bool is_never(pair_f16 x) { return (float)x.x == -60000.0f && (float)x.y == -60000.0f; }

#endif
