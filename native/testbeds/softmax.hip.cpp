/* Softmax of rows, one block each: an output that is written whole, whatever it held. */
#include "testbed.h"

extern "C" __global__ void softmax(const float *in, float *out, int width)
{
	__shared__ float shared[THREADS];
	const float *row = in + (size_t)blockIdx.x * width;
	float most = -3.4e38f, total = 0;
	for (int i = threadIdx.x; i < width; i += THREADS)
		most = greater(most, row[i]);
	most = across(most, shared, false);
	for (int i = threadIdx.x; i < width; i += THREADS)
		total += exponential(row[i] - most);
	total = across(total, shared, true);
	for (int i = threadIdx.x; i < width; i += THREADS)
		out[(size_t)blockIdx.x * width + i] = exponential(row[i] - most) / total;
}
