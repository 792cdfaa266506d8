/* A GPU of one thread at a time: what a kernel loads, stores and computes is counted. */
#pragma once
#include <cstddef>
#define __global__
#define __device__
#define __shared__ static
struct dim { unsigned x, y, z; };
extern dim threadIdx, blockIdx, gridDim;
extern long bytes, shared, flops, beyond;

/* A vector says where it comes from and where it goes to; only those in memory are traffic. */
void touched(const void *at, bool store);
struct float4 {
	float x, y, z, w;
	float4() : x(0), y(0), z(0), w(0) {}
	float4(float a, float b, float c, float d) : x(a), y(b), z(c), w(d) {}
	float4(const float4 &from) : x(from.x), y(from.y), z(from.z), w(from.w) { touched(&from, false); }
	float4 &operator=(const float4 &from)
	{
		touched(&from, false);
		touched(this, true);
		x = from.x, y = from.y, z = from.z, w = from.w;
		return *this;
	}
};
inline float4 make_float4(float x, float y, float z, float w) { return float4(x, y, z, w); }
inline void __syncthreads() {}
inline double fma(double x, double a, double b)
{
	flops += 2;
	return x * a + b;
}
