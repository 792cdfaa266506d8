/* What the sources under native use of AMD's hip_runtime.h, enough to compile them without ROCm. */
#pragma once
typedef __SIZE_TYPE__ size_t;
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
struct float4 { float x, y, z, w; };
struct dim { unsigned x, y, z; };
#define threadIdx (dim{__builtin_amdgcn_workitem_id_x(), 0, 0})
#define blockIdx (dim{__builtin_amdgcn_workgroup_id_x(), 0, 0})
#define gridDim (dim{__builtin_amdgcn_grid_size_x() / 256, 1, 1})
__device__ inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }
__device__ double fma(double, double, double);
__device__ inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
__device__ inline unsigned __float_as_uint(float number) { return __builtin_bit_cast(unsigned, number); }
__device__ inline long long clock64() { return __builtin_readcyclecounter(); }
__device__ inline void __trap() { __builtin_trap(); }
__device__ inline void __syncthreads() { __builtin_amdgcn_s_barrier(); }
__device__ inline unsigned atomicAdd(unsigned *at, unsigned add) { return __atomic_fetch_add(at, add, __ATOMIC_RELAXED); }
