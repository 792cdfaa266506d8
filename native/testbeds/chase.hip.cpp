/* A list of nodes in device memory that hold device pointers: right only if every region is where it was. */
#include "testbed.h"

struct Node {
	const float *payload;
	const Node *next;
};

extern "C" __global__ void chase(const Node *first, float *out, int count, float scale)
{
	int at = blockIdx.x * THREADS + threadIdx.x;
	if (at >= count)
		return;
	float total = 0;
	for (const Node *node = first; node; node = node->next)
		total += scale * node->payload[at];
	out[at] = total;
}
