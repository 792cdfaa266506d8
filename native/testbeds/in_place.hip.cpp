/* An update in place: the input is the output, so a second run without restoring computes something else. */
#include "testbed.h"

extern "C" __global__ void in_place(float *weights, const float *gradient, float rate, int count)
{
	int at = blockIdx.x * THREADS + threadIdx.x;
	if (at < count)
		weights[at] = weights[at] * (1 - rate) - rate * gradient[at];
}
