// Kernels for the optimiser: out[at] = value ends each, so that faults can be planted there.

extern "C" __global__ void strided(const float *a, float *out, int n, int k, int stride)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	float value = 0.0f;
	if (at >= n)
		return;
	for (int i = 0; i < k; i++)
		value += a[(size_t)i * stride + at];
	out[at] = value;
}

// The sum is kept in memory, which the compiler must take for the input's, too: __restrict__ mends it.
extern "C" __global__ void sum_in_memory(const float *a, float *out, int n, int k, int stride)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	float value = 0.0f;
	if (at >= n)
		return;
	out[at] = 0.0f;
	for (int i = 0; i < k; i++)
		out[at] += a[(size_t)i * stride + at];
	value = out[at];
	out[at] = value;
}

extern "C" __global__ void chain(const float *a, float *out, int n, int k, int stride)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	float value = 0.0f;
	if (at >= n)
		return;
	value = a[at];
	for (int i = 0; i < k; i++)
		value = value * 0.999f + 0.25f;
	out[at] = value;
}

extern "C" __global__ void four_chains(const float *a, float *out, int n, int k, int stride)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	float value = 0.0f;
	if (at >= n)
		return;
	float w = a[at], x = w + 1.0f, y = w + 2.0f, z = w + 3.0f;
	for (int i = 0; i < k; i++) {
		w = w * 0.999f + 0.1f;
		x = x * 0.998f + 0.2f;
		y = y * 0.997f + 0.3f;
		z = z * 0.996f + 0.4f;
	}
	value = (w + x) + (y + z);
	out[at] = value;
}

extern "C" __global__ void product(const float *a, float *out, int n, int k, int stride)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	float value = 0.0f;
	if (at >= n)
		return;
	int row = at / k, column = at % k;
	for (int i = 0; i < k; i++)
		value += a[row * k + i] * a[i * k + column];
	out[at] = value;
}

extern "C" __global__ void sine(const float *a, float *out, int n, int k, int stride)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	float value = 0.0f;
	if (at >= n)
		return;
	for (int i = 0; i < k; i++) {
		float x = a[(size_t)i * stride + at];
		value += __sinf(x) * x;
	}
	out[at] = value;
}

extern "C" __global__ void gathered(const float *a, float *out, int n, int k, int stride)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	float value = 0.0f;
	if (at >= n)
		return;
	unsigned place = at * 2654435761u;
	for (int i = 0; i < k; i++) {
		place = place * 1664525u + 1013904223u;
		value += a[place % (unsigned)stride];
	}
	out[at] = value;
}

// Each thread normalises its own row: loads that are far apart.
extern "C" __global__ void row_softmax(const float *a, float *out, int n, int k, int stride)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	float value = 0.0f;
	if (at >= n)
		return;
	float most = -3.4e38f;
	for (int i = 0; i < k; i++)
		most = fmaxf(most, a[(size_t)at * k + i]);
	for (int i = 0; i < k; i++)
		value += expf(a[(size_t)at * k + i] - most);
	out[at] = value;
}

extern "C" __global__ void stencil(const float *a, float *out, int n, int k, int stride)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	float value = 0.0f;
	if (at >= n)
		return;
	for (int i = 0; i < k; i++)
		value += a[(at + i * i) % n] * (1.0f / (1 + i));
	out[at] = value;
}

extern "C" __global__ void polynomial(const float *a, float *out, int n, int k, int stride)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	float value = 0.0f;
	if (at >= n)
		return;
	float x = a[at];
	for (int i = k; i > 0; i--)
		value = value * x + 1.0f / i;
	out[at] = value;
}

extern "C" __global__ void root_mean_square(const float *a, float *out, int n, int k, int stride)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	float value = 0.0f;
	if (at >= n)
		return;
	for (int i = 0; i < k; i++) {
		float x = a[(size_t)i * stride + at];
		value += x * x;
	}
	value = a[at] * rsqrtf(value / k + 1e-5f);
	out[at] = value;
}
