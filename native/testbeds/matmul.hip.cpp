/* A naive matrix product, a thread for each element: c[m][n] = a[m][k] b[k][n]. */
#include "testbed.h"

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k)
{
	int at = blockIdx.x * THREADS + threadIdx.x;
	if (at >= m * n)
		return;
	float total = 0;
	for (int i = 0; i < k; i++)
		total += a[(size_t)(at / n) * k + i] * b[(size_t)i * n + at % n];
	c[at] = total;
}
