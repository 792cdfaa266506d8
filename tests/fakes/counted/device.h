/* Takes the place of native/calibration/device.h: pairs that count. */
#pragma once
template <int LANES> struct pair { float x; };
typedef pair<1> pair_f32;
typedef pair<2> pair_f16;
#define F32_LANES 1
inline float4 load_l2(const float4 *from) { return *from; }
inline pair_f32 pack_f32(float x) { return {x}; }
inline pair_f16 pack_f16(unsigned bits) { return {(float)bits}; }
template <int LANES> pair<LANES> multiply_add(pair<LANES> x, pair<LANES> a, pair<LANES> b)
{
	flops += 2 * LANES;
	return {x.x * a.x + b.x};
}
template <int LANES> bool is_never(pair<LANES> x) { return false; }
