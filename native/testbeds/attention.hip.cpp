/* Attention of one query a block, its scores in local memory that is sized at the launch: dynamic LDS must be replayed. */
#include "testbed.h"

extern "C" __global__ void attention(const float *query, const float *key, const float *value, float *out, int keys,
				     int width, float scale)
{
	extern __shared__ float scores[]; /* keys floats, then THREADS */
	float *shared = scores + keys, most = -3.4e38f, total = 0;
	const float *q = query + (size_t)blockIdx.x * width;
	for (int k = threadIdx.x; k < keys; k += THREADS) {
		float dot = 0;
		for (int i = 0; i < width; i++)
			dot += q[i] * key[(size_t)k * width + i];
		scores[k] = dot * scale;
		most = greater(most, scores[k]);
	}
	most = across(most, shared, false);
	for (int k = threadIdx.x; k < keys; k += THREADS) {
		scores[k] = exponential(scores[k] - most);
		total += scores[k];
	}
	total = across(total, shared, true);
	for (int i = threadIdx.x; i < width; i += THREADS) {
		float weighted = 0;
		for (int k = 0; k < keys; k++)
			weighted += scores[k] * value[(size_t)k * width + i];
		out[(size_t)blockIdx.x * width + i] = weighted / total;
	}
}
