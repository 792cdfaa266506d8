// What the program of _sums_program.py runs: numbers, and the sum of each of their columns, many times.

extern "C" __global__ void fill(float *a, int count)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	if (at < count)
		a[at] = 0.25f + (float)((unsigned)at * 2654435761u >> 8) * 4.4703484e-8f;
}

__device__ float column_sum(const float *a, int at, int rows, int columns)
{
	float sum = 0.0f;
#pragma unroll 1
	for (int row = 0; row < rows; row++)
		sum += a[(size_t)row * columns + at];
	return sum;
}

extern "C" __global__ void __launch_bounds__(64) column_sums(const float *__restrict__ a, float *__restrict__ out,
                                                             int rows, int columns)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	if (at < columns)
		out[at] = column_sum(a, at, rows, columns);
}
