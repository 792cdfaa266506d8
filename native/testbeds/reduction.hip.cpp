/* The sums of rows, one block each: a small output of a large input. */
#include "testbed.h"

extern "C" __global__ void reduction(const float *in, float *out, int width)
{
	__shared__ float shared[THREADS];
	float total = 0;
	for (int i = threadIdx.x; i < width; i += THREADS)
		total += in[(size_t)blockIdx.x * width + i];
	total = across(total, shared, true);
	if (threadIdx.x == 0)
		out[blockIdx.x] = total;
}
