/*
 * What `aaco calibrate` runs to find a GPU's roofs. src/aaco/calibration/work.py counts the bytes and operations of each
 * kernel by formula from the same constants; whoever changes a kernel changes its formula.
 *
 * Every block has BLOCK threads. Reads are made to look used by a store that a value which never occurs would cause.
 * Counts are whole multiples of what a block does, so no thread tests a bound.
 */
#include <hip/hip_runtime.h>
#include <device.h>

#define BLOCK 256
#define UNROLL 4          /* vectors of 16 bytes in flight per thread: enough to cover the memory's latency */
#define TILE 1024         /* vectors of shared memory: 16 KiB */
#define LDS_LOADS 8       /* of each thread and turn */
#define CHAINS 16         /* independent multiply-adds of each thread and turn: more than the units' latency needs */
#define CHAINS_F64 8
#define NEVER (-1.2345e30f)

__device__ inline bool never(float4 v) { return v.x == NEVER && v.y == NEVER && v.z == NEVER && v.w == NEVER; }

__device__ inline float4 sum(float4 a, float4 b)
{
	return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* The first of a thread's UNROLL vectors, BLOCK apart. */
__device__ inline size_t first() { return (size_t)blockIdx.x * (BLOCK * UNROLL) + threadIdx.x; }

/* Device memory: each block goes once over its own BLOCK * UNROLL vectors. */

extern "C" __global__ void memory_read(const float4 *from, float4 *out)
{
	float4 v[UNROLL];
#pragma unroll
	for (int k = 0; k < UNROLL; k++)
		v[k] = from[first() + k * BLOCK];
	float4 total = v[0];
#pragma unroll
	for (int k = 1; k < UNROLL; k++)
		total = sum(total, v[k]);
	if (never(total))
		out[0] = total;
}

extern "C" __global__ void memory_write(float4 *to, float value)
{
#pragma unroll
	for (int k = 0; k < UNROLL; k++)
		to[first() + k * BLOCK] = make_float4(value, value, value, value);
}

extern "C" __global__ void memory_copy(const float4 *from, float4 *to)
{
	float4 v[UNROLL];
#pragma unroll
	for (int k = 0; k < UNROLL; k++)
		v[k] = from[first() + k * BLOCK];
#pragma unroll
	for (int k = 0; k < UNROLL; k++)
		to[first() + k * BLOCK] = v[k];
}

extern "C" __global__ void memory_add(const float4 *left, const float4 *right, float4 *to)
{
	float4 v[UNROLL], w[UNROLL];
#pragma unroll
	for (int k = 0; k < UNROLL; k++) {
		v[k] = left[first() + k * BLOCK];
		w[k] = right[first() + k * BLOCK];
	}
#pragma unroll
	for (int k = 0; k < UNROLL; k++)
		to[first() + k * BLOCK] = sum(v[k], w[k]);
}

/*
 * Second-level cache: every block goes round the same `vectors` (a power of two that fits), each from a place of its
 * own, so that the blocks of one compute unit do not feed each other from its first-level cache.
 */
extern "C" __global__ void l2_read(const float4 *from, float4 *out, unsigned vectors, unsigned turns)
{
	unsigned step = BLOCK * UNROLL, mask = vectors - 1;
	unsigned at = (unsigned)((unsigned long long)blockIdx.x * vectors / gridDim.x) / step * step;
	float4 total = make_float4(0, 0, 0, 0);
	for (unsigned turn = 0; turn < turns; turn++, at += step) {
		float4 v[UNROLL];
#pragma unroll
		for (int k = 0; k < UNROLL; k++)
			v[k] = load_l2(from + ((at + k * BLOCK + threadIdx.x) & mask));
#pragma unroll
		for (int k = 0; k < UNROLL; k++)
			total = sum(total, v[k]);
	}
	if (never(total))
		out[0] = total;
}

/* Shared memory (LDS): neighbours read neighbouring vectors, so no two lanes meet in a bank. */
extern "C" __global__ void lds_read(float4 *out, float value, unsigned turns)
{
	__shared__ float4 tile[TILE];
	for (unsigned at = threadIdx.x; at < TILE; at += BLOCK)
		tile[at] = make_float4(value, value, value, value);
	__syncthreads();
	float4 total = make_float4(0, 0, 0, 0);
	unsigned at = threadIdx.x;
	for (unsigned turn = 0; turn < turns; turn++) {
#pragma unroll
		for (int k = 0; k < LDS_LOADS; k++)
			total = sum(total, tile[at + k * 64]);
		at = (at + 64) & (TILE / 2 - 1); /* the compiler cannot tell that a turn reads what the last one read */
	}
	if (never(total))
		out[0] = total;
}

/* Multiply-adds in registers alone. */

extern "C" __global__ void fma_f32(float *out, float a, float b, unsigned turns)
{
	pair_f32 x[CHAINS / F32_LANES], factor = pack_f32(a), addend = pack_f32(b);
#pragma unroll
	for (int k = 0; k < CHAINS / F32_LANES; k++)
		x[k] = pack_f32((float)(threadIdx.x + k));
#pragma unroll 4
	for (unsigned turn = 0; turn < turns; turn++)
#pragma unroll
		for (int k = 0; k < CHAINS / F32_LANES; k++)
			x[k] = multiply_add(x[k], factor, addend);
#pragma unroll
	for (int k = 0; k < CHAINS / F32_LANES; k++)
		if (is_never(x[k]))
			out[0] = a;
}

extern "C" __global__ void fma_f16(float *out, unsigned a, unsigned b, unsigned turns)
{
	pair_f16 x[CHAINS / 2], factor = pack_f16(a), addend = pack_f16(b);
#pragma unroll
	for (int k = 0; k < CHAINS / 2; k++)
		x[k] = pack_f16(0x3c003c00u + threadIdx.x + k);
#pragma unroll 4
	for (unsigned turn = 0; turn < turns; turn++)
#pragma unroll
		for (int k = 0; k < CHAINS / 2; k++)
			x[k] = multiply_add(x[k], factor, addend);
#pragma unroll
	for (int k = 0; k < CHAINS / 2; k++)
		if (is_never(x[k]))
			out[0] = 1.0f;
}

extern "C" __global__ void fma_f64(float *out, double a, double b, unsigned turns)
{
	double x[CHAINS_F64];
#pragma unroll
	for (int k = 0; k < CHAINS_F64; k++)
		x[k] = threadIdx.x + k;
#pragma unroll 4
	for (unsigned turn = 0; turn < turns; turn++)
#pragma unroll
		for (int k = 0; k < CHAINS_F64; k++)
			x[k] = fma(x[k], a, b);
#pragma unroll
	for (int k = 0; k < CHAINS_F64; k++)
		if (x[k] == -1.2345e300)
			out[0] = 1.0f;
}

/* What a launch costs when the kernel does nothing. */
extern "C" __global__ void empty() {}
