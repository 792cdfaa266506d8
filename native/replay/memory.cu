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

// Whether the captured launch changed something in the 64 bytes around: then they are state as a whole, since the upper
// bytes of a counter stay as they are while the lower ones count.
__device__ bool is_changed(const u8 *before, const u8 *expected, u64 at, u64 n)
{
	u64 begin = at & ~(u64)63, end = begin + 64 < n ? begin + 64 : n;
	for (u64 each = begin; each < end; each++)
		if (before[each] != expected[each])
			return true;
	return false;
}

// mask = ones where live is no longer the inverse of expected, so that something wrote there; they are counted. Where
// there is `before`, only bytes in whose surroundings it is as expected.
extern "C" __global__ void written(u8 *mask, const u8 *live, const u8 *expected, const u8 *before, u64 n, u64 *count)
{
	u64 mine = 0;
	for (u64 at = me(); at < n; at += all()) {
		int is = live[at] != (u8)~expected[at] && (!before || !is_changed(before, expected, at, n));
		mask[at] = is ? 0xff : 0;
		mine += is;
	}
	if (mine)
		atomicAdd(count, mine);
}

// A number of one of the types of tolerance.py, and whether it is zero or a normal number.
__device__ double number(const u8 *at, u32 bytes, u32 type, bool *plain)
{
	u64 bits = 0;
	for (u32 each = 0; each < bytes; each++)
		bits |= (u64)at[each] << 8 * each;
	if (type == 0) {
		double value = __longlong_as_double(bits);
		*plain = value == 0 || (fabs(value) >= 2.2250738585072014e-308 && fabs(value) <= 1.7976931348623157e308);
		return value;
	}
	if (type == 2) { // half: five bits of exponent, ten of the fraction
		u32 exponent = bits >> 10 & 31;
		*plain = (bits & 0x7fff) == 0 || (exponent > 0 && exponent < 31);
		double value = exponent ? ldexp(1024.0 + (bits & 1023), (int)exponent - 25) : 0;
		return bits >> 15 ? -value : value;
	}
	float value = __uint_as_float((u32)(type == 3 ? bits << 16 : bits));
	*plain = value == 0 || (fabsf(value) >= 1.17549435e-38f && fabsf(value) <= 3.40282347e38f);
	return value;
}

// Counts the bytes of numbers that differ by more than absolute + relative * |right|. Other bits than those of zero or a
// normal number must be equal: small whole numbers look like subnormal ones. So must what is left at the end.
extern "C" __global__ void beyond(const u8 *left, const u8 *right, u64 n, u32 bytes, u32 type, double relative,
				  double absolute, u64 *count)
{
	u64 numbers = n / bytes, mine = 0;
	for (u64 at = me(); at < numbers; at += all()) {
		const u8 *a = left + at * bytes, *b = right + at * bytes;
		bool same = true, plain_a, plain_b;
		for (u32 each = 0; each < bytes; each++)
			same = same && a[each] == b[each];
		if (same)
			continue;
		double x = number(a, bytes, type, &plain_a), y = number(b, bytes, type, &plain_b);
		if (!plain_a || !plain_b || !(fabs(x - y) <= absolute + relative * fabs(y)))
			mine += bytes;
	}
	for (u64 at = numbers * bytes + me(); at < n; at += all())
		mine += left[at] != right[at];
	if (mine)
		atomicAdd(count, mine);
}

// Bytes that no program foresees: of a seed and a place (the finaliser of splitmix64). flip: 0, or 0xff for the inverse of all.
__device__ u8 noise(u64 seed, u64 at, u32 flip)
{
	u64 x = seed + (at + 1) * 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return (u8)(x ^ x >> 31 ^ flip);
}

// to = noise, where mask has ones; everywhere without a mask.
extern "C" __global__ void scramble(u8 *to, const u8 *mask, u64 n, u64 seed, u32 flip)
{
	for (u64 at = me(); at < n; at += all())
		if (!mask || mask[at])
			to[at] = noise(seed, at, flip);
}

// left = ones where the two differ and mask has ones; they are counted.
extern "C" __global__ void unwritten(u8 *left, const u8 *first, const u8 *second, const u8 *mask, u64 n, u64 *count)
{
	u64 mine = 0;
	for (u64 at = me(); at < n; at += all()) {
		int is = mask[at] && first[at] != second[at];
		left[at] = is ? 0xff : 0;
		mine += is;
	}
	if (mine)
		atomicAdd(count, mine);
}

// A number as the bytes of one of the types of tolerance.py; a fraction is cut off, so that it stays in the range of the others.
__device__ void put(u8 *to, double value, u32 bytes, u32 type)
{
	u64 bits;
	if (type == 0) {
		bits = __double_as_longlong(value);
	} else if (type == 2) {
		u64 wide = __double_as_longlong(value);
		bits = (wide >> 48 & 0x8000) | (((wide >> 52 & 2047) - 1023 + 15) << 10 & 0x7c00) | (wide >> 42 & 0x3ff);
	} else {
		bits = __float_as_uint((float)value);
		bits = type == 3 ? bits >> 16 : bits;
	}
	for (u32 each = 0; each < bytes; each++)
		to[each] = bits >> 8 * each;
}

// Other inputs like those captured: to[i] = low + (from[(i * step + shift) mod n] - low) * factor. Only normal numbers move, and
// only to places of normal numbers: zeros, small whole numbers, infinities and NaN stay what and where they are.
extern "C" __global__ void vary(u8 *to, const u8 *from, u64 n, u32 bytes, u32 type, u64 step, u64 shift, double low, double factor)
{
	for (u64 at = me(); at < n; at += all()) {
		u64 other = (at * step + shift) % n;
		bool plain, plain_other;
		double here = number(from + at * bytes, bytes, type, &plain), there = number(from + other * bytes, bytes, type,
												    &plain_other);
		if (!plain || here == 0)
			continue;
		double value = low + ((plain_other && there != 0 ? there : here) - low) * factor;
		double size = fabs(value), least = type == 2 ? 6.103515625e-5 : type == 0 ? 2.2250738585072014e-308 : 1.17549435e-38;
		if (size >= least)
			put(to + at * bytes, value, bytes, type);
	}
}

// Keeps the device busy, so that what is queued behind is queued before the device comes to it.
extern "C" __global__ void delay(u64 ns)
{
	u64 begin, now;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - begin < ns);
}
