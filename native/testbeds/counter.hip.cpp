/* Blocks draw their work from a counter in device memory: run again without restoring it, there is no work left. */
#include "testbed.h"

__device__ unsigned launches; /* a variable of the module: it counts the blocks that drew work */

extern "C" __global__ void counter(unsigned *next, const float *in, float *out, unsigned tiles)
{
	__shared__ unsigned tile;
	for (;;) {
		if (threadIdx.x == 0)
			tile = atomicAdd(next, 1u);
		__syncthreads();
		unsigned mine = tile;
		__syncthreads();
		if (mine >= tiles)
			return;
		if (threadIdx.x == 0)
			atomicAdd(&launches, 1u);
		out[(size_t)mine * THREADS + threadIdx.x] = 2 * in[(size_t)mine * THREADS + threadIdx.x];
	}
}
