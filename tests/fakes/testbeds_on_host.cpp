/* Runs each testbed on the host and prints its greatest difference from a plain loop, as JSON. */
#include <hip/hip_runtime.h>
#include "softmax.hip.cpp"
#include "matmul.hip.cpp"
#include "gather.hip.cpp"
#include "reduction.hip.cpp"
#include "chase.hip.cpp"
#include "counter.hip.cpp"
#include "in_place.hip.cpp"

#undef __shared__
#define __shared__ /* attention's is sized at the launch, and extern */
float scores[4096];
#include "attention.hip.cpp"

#include <cstdio>
#include <random>

typedef std::vector<float> Floats;

static Floats numbers(size_t count)
{
	static std::mt19937 engine(1);
	std::normal_distribution<float> normal;
	Floats made(count);
	for (float &number : made)
		number = normal(engine);
	return made;
}

static double difference(const Floats &a, const std::vector<double> &b)
{
	double most = 0;
	for (size_t i = 0; i < a.size(); i++)
		most = std::fmax(most, std::isnan(a[i]) ? 1e9 : std::fabs(a[i] - b[i]));
	return most;
}

static std::vector<double> softmax_of(const double *row, int width)
{
	double total = 0;
	std::vector<double> made(width);
	for (int i = 0; i < width; i++)
		total += made[i] = std::exp(row[i]);
	for (double &number : made)
		number /= total;
	return made;
}

static double try_softmax()
{
	int rows = 3, width = 300;
	Floats in = numbers(rows * width), out(rows * width);
	launch(rows, THREADS, softmax, in.data(), out.data(), width);
	std::vector<double> right, wide(in.begin(), in.end());
	for (int row = 0; row < rows; row++)
		for (double number : softmax_of(&wide[row * width], width))
			right.push_back(number);
	return difference(out, right);
}

static double try_attention()
{
	int queries = 2, keys = 200, width = 48;
	Floats query = numbers(queries * width), key = numbers(keys * width), value = numbers(keys * width);
	Floats out(queries * width);
	launch(queries, THREADS, attention, query.data(), key.data(), value.data(), out.data(), keys, width, .125f);
	std::vector<double> right;
	for (int q = 0; q < queries; q++) {
		std::vector<double> dots(keys);
		for (int k = 0; k < keys; k++)
			for (int i = 0; i < width; i++)
				dots[k] += .125 * query[q * width + i] * key[k * width + i];
		std::vector<double> weights = softmax_of(dots.data(), keys);
		for (int i = 0; i < width; i++) {
			double total = 0;
			for (int k = 0; k < keys; k++)
				total += weights[k] * value[k * width + i];
			right.push_back(total);
		}
	}
	return difference(out, right);
}

static double try_matmul()
{
	int m = 13, n = 17, k = 9;
	Floats a = numbers(m * k), b = numbers(k * n), c(m * n);
	launch((m * n + THREADS - 1) / THREADS, THREADS, matmul, a.data(), b.data(), c.data(), m, n, k);
	std::vector<double> right(m * n);
	for (int at = 0; at < m * n; at++)
		for (int i = 0; i < k; i++)
			right[at] += double(a[at / n * k + i]) * b[i * n + at % n];
	return difference(c, right);
}

static double try_gather()
{
	int width = 150;
	std::vector<long long> index = {4, 0, 4, 2};
	Floats table = numbers(5 * width), out(index.size() * width);
	launch(index.size(), THREADS, gather, table.data(), index.data(), out.data(), width);
	std::vector<double> right;
	for (long long row : index)
		right.insert(right.end(), &table[row * width], &table[row * width] + width);
	return difference(out, right);
}

static double try_reduction()
{
	int rows = 3, width = 333;
	Floats in = numbers(rows * width), out(rows);
	launch(rows, THREADS, reduction, in.data(), out.data(), width);
	std::vector<double> right(rows);
	for (int at = 0; at < rows * width; at++)
		right[at / width] += in[at];
	return difference(out, right);
}

static double try_chase()
{
	int count = 200;
	Floats payloads[4], out(2 * THREADS, 7.f);
	Node nodes[4];
	std::vector<double> right(2 * THREADS, 7.);
	for (int at = 0; at < count; at++)
		right[at] = 0;
	for (int n = 0; n < 4; n++) {
		payloads[n] = numbers(count);
		nodes[n] = {payloads[n].data(), n < 3 ? &nodes[n + 1] : nullptr};
		for (int at = 0; at < count; at++)
			right[at] += .5 * payloads[n][at];
	}
	launch(2, THREADS, chase, (const Node *)nodes, out.data(), count, .5f);
	return difference(out, right);
}

int main()
{
	unsigned next = 0, tiles = 5;
	Floats in = numbers(tiles * THREADS), out(tiles * THREADS), again(tiles * THREADS);
	launch(3, THREADS, counter, &next, in.data(), out.data(), tiles);
	launch(3, THREADS, counter, &next, in.data(), again.data(), tiles);
	std::vector<double> twice;
	for (float number : in)
		twice.push_back(2. * number);

	Floats weights = numbers(200), gradient = numbers(200);
	std::vector<double> updated;
	for (int at = 0; at < 200; at++)
		updated.push_back(weights[at] * .9 - .1 * gradient[at]);
	launch(2, THREADS, in_place, weights.data(), gradient.data(), .1f, 200);
	double first = difference(weights, updated);
	launch(2, THREADS, in_place, weights.data(), gradient.data(), .1f, 200);

	std::printf("{\"softmax\": %g, \"attention\": %g, \"matmul\": %g, \"gather\": %g, \"reduction\": %g, \"chase\": %g, "
		    "\"counter\": %g, \"counter_again\": %g, \"blocks_counted\": %u, \"in_place\": %g, \"in_place_again\": %g}\n",
		    try_softmax(), try_attention(), try_matmul(), try_gather(), try_reduction(), try_chase(),
		    difference(out, twice), difference(again, std::vector<double>(again.size())), launches, first,
		    difference(weights, updated));
}
