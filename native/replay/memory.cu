// Kernels that a replay uses on the memory that it restores. Each goes over n bytes, sixteen at a time where all addresses
// are aligned so. Compiled to PTX, which the driver compiles for its device: `make` writes src/aaco/replay/memory.ptx.
typedef unsigned long long u64;
typedef unsigned char u8;
typedef unsigned int u32;

__device__ u64 me() { return blockIdx.x * (u64)blockDim.x + threadIdx.x; }
__device__ u64 all() { return gridDim.x * (u64)blockDim.x; }
__device__ u32 same_zero(u32 x) { return __vcmpeq4(x, 0); } // 0xff where a byte is zero

extern "C" __global__ void differing(const u8 *left, const u8 *right, u64 n, u64 *count)
{
	u64 words = (((u64)left | (u64)right) & 15) ? 0 : n / 16, mine = 0;
	for (u64 at = me(); at < words; at += all()) {
		uint4 a = ((const uint4 *)left)[at], b = ((const uint4 *)right)[at];
		mine += 16 - (__popc(same_zero(a.x ^ b.x)) + __popc(same_zero(a.y ^ b.y)) + __popc(same_zero(a.z ^ b.z)) +
			      __popc(same_zero(a.w ^ b.w))) / 8;
	}
	for (u64 at = 16 * words + me(); at < n; at += all())
		mine += left[at] != right[at];
	if (mine)
		atomicAdd(count, mine);
}

// to = the inverse of from, where mask has ones; everywhere without a mask.
extern "C" __global__ void invert(u8 *to, const u8 *from, const u8 *mask, u64 n)
{
	u64 words = (((u64)to | (u64)from | (u64)mask) & 15) ? 0 : n / 16;
	for (u64 at = me(); at < words; at += all()) {
		uint4 a = ((const uint4 *)from)[at], m = mask ? ((const uint4 *)mask)[at] : make_uint4(~0u, ~0u, ~0u, ~0u);
		uint4 old = ((uint4 *)to)[at];
		((uint4 *)to)[at] = make_uint4((old.x & ~m.x) | (~a.x & m.x), (old.y & ~m.y) | (~a.y & m.y),
					       (old.z & ~m.z) | (~a.z & m.z), (old.w & ~m.w) | (~a.w & m.w));
	}
	for (u64 at = 16 * words + me(); at < n; at += all()) {
		u8 m = mask ? mask[at] : 0xff;
		to[at] = (to[at] & ~m) | (~from[at] & m);
	}
}

// mask = ones where live is no longer the inverse of expected, so that something wrote there; they are counted. Where
// there is `before`, only bytes that are as they were before.
extern "C" __global__ void written(u8 *mask, const u8 *live, const u8 *expected, const u8 *before, u64 n, u64 *count)
{
	u64 mine = 0;
	for (u64 at = me(); at < n; at += all()) {
		int is = live[at] != (u8)~expected[at] && (!before || before[at] == expected[at]);
		mask[at] = is ? 0xff : 0;
		mine += is;
	}
	if (mine)
		atomicAdd(count, mine);
}

// Keeps the device busy, so that what is queued behind is queued before the device comes to it.
extern "C" __global__ void delay(u64 ns)
{
	u64 begin, now;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - begin < ns);
}
