// Kernels that a replay must get right, and some that it must refuse or survive.
struct node { node *next; unsigned long long value; unsigned long long unused[6]; };

__device__ unsigned turns;          // how often counter ran: the module's own memory
__constant__ float scale = 1.5f;

// Memory that holds device pointers: it runs nowhere but at its addresses.
extern "C" __global__ void chase(node *begin, unsigned long long *out, unsigned length)
{
	node *at = begin + threadIdx.x;
	unsigned long long sum = 0;
	for (unsigned step = 0; step < length; step++) {
		sum += at->value;
		at = at->next;
	}
	out[threadIdx.x] = sum;
}

// What it writes depends on how often it ran; threads take work from a counter in memory that nobody resets.
extern "C" __global__ void counter(unsigned *memory, unsigned *out, unsigned n)
{
	unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
	unsigned mine = turns;
	if (at < n)
		out[at] = memory[at] * 3u + mine * (unsigned)scale;
	if (at == 0)
		atomicAdd(&memory[0], 1u);
	__syncthreads();
	if (at == 0)
		turns = mine + 1;
}

// In place.
extern "C" __global__ void accumulate(float *memory, float *out, unsigned n)
{
	unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
	if (at < n)
		memory[at] += scale;
}

// As counter, edited: the same result another way.
extern "C" __global__ void doubled_twice(float *memory, float *out, unsigned n)
{
	for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += gridDim.x * blockDim.x)
		out[at] = 4.0f * memory[at];
}
