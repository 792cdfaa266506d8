/* Rows of a table by index: which memory is read depends on memory. */
#include "testbed.h"

extern "C" __global__ void gather(const float *table, const long long *index, float *out, int width)
{
	const float *row = table + index[blockIdx.x] * width;
	for (int i = threadIdx.x; i < width; i += THREADS)
		out[(size_t)blockIdx.x * width + i] = row[i];
}
