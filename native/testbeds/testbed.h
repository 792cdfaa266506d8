/* What the vendors write differently, and what all testbeds share: rows of WIDTH floats, one block of THREADS each. */
#pragma once
#include <hip/hip_runtime.h>

#define THREADS 128

#if defined(__HIP_DEVICE_COMPILE__) || defined(__AMDGCN__)
#define TESTBED_EXP2 __builtin_exp2f /* v_exp_f32, without ROCm's device libraries */
#else
#define TESTBED_EXP2 exp2f
#endif

__device__ inline float exponential(float x) { return TESTBED_EXP2(x * 1.44269504f); }
__device__ inline float greater(float a, float b) { return a > b ? a : b; }

/* The greatest, or the sum, of one number of each thread; `shared` has THREADS floats. All threads get it. */
__device__ inline float across(float mine, float *shared, bool sum)
{
	__syncthreads(); /* the one before may still be read */
	shared[threadIdx.x] = mine;
	__syncthreads();
	for (unsigned half = THREADS / 2; half; half /= 2) {
		if (threadIdx.x < half) {
			float other = shared[threadIdx.x + half];
			shared[threadIdx.x] = sum ? shared[threadIdx.x] + other : greater(shared[threadIdx.x], other);
		}
		__syncthreads();
	}
	return shared[0];
}
