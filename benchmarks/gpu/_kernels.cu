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

// One block. What it writes depends on how often it ran, which the module and the memory know and nobody resets.
extern "C" __global__ void counter(unsigned *memory, unsigned *out, unsigned n)
{
	unsigned turn = turns + memory[0];
	__syncthreads();
	for (unsigned at = threadIdx.x; at < n; at += blockDim.x)
		out[at] = at * 3u + turn * (unsigned)(2.0f * scale);
	if (threadIdx.x == 0) {
		turns++;
		memory[0]++;
	}
}

// Never ends where the memory does not begin with what the program put there: inverted, it hangs.
extern "C" __global__ void waits(volatile unsigned *memory, unsigned *out, unsigned n)
{
	while (memory[1] != 7u)
		;
	for (unsigned at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += gridDim.x * blockDim.x)
		out[at] = at;
}

// In place.
extern "C" __global__ void accumulate(float *memory, float *out, unsigned n)
{
	unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
	if (at < n)
		memory[at] += scale;
}

extern "C" __global__ void scaled(const float *memory, float *out, unsigned n)
{
	unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
	if (at < n)
		out[at] = scale * memory[at];
}
