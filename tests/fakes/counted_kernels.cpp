/* Runs every kernel of native/calibration, thread by thread, and prints what it did as JSON: counted BLOCKS TURNS. */
#include <cstdio>
#include <cstdlib>
#include <vector>
#include KERNELS

dim threadIdx, blockIdx, gridDim;
long bytes, shared, flops, beyond;

/* Arrays with forbidden ground around each. */
static const unsigned SPACE = 1 << 16;
static std::vector<float4> ground;
static std::vector<std::pair<const char *, const char *>> arrays;
extern char __bss_start, _end;

void touched(const void *at, bool store)
{
	const char *place = (const char *)at;
	for (auto &array : arrays)
		if (place >= array.first && place < array.second) {
			bytes += sizeof(float4);
			return;
		}
	if (place >= (char *)ground.data() && place < (char *)(ground.data() + ground.size()))
		beyond++;
	else if (place >= &__bss_start && place < &_end && !store)
		shared += sizeof(float4);
}

template <typename Kernel> void run(const char *name, unsigned blocks, Kernel kernel, const char *end)
{
	bytes = shared = flops = beyond = 0;
	gridDim = {blocks, 1, 1};
	for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
		for (threadIdx.x = 0; threadIdx.x < BLOCK; threadIdx.x++)
			kernel();
	printf("\"%s\": {\"bytes\": %ld, \"shared\": %ld, \"flops\": %ld, \"beyond\": %ld}%s", name, bytes, shared, flops,
	       beyond, end);
}

int main(int, char **given)
{
	unsigned blocks = atoi(given[1]), turns = atoi(given[2]), vectors = blocks * BLOCK * UNROLL;
	ground.resize(4 * SPACE + 3 * vectors);
	float4 *lane[3];
	for (int i = 0; i < 3; i++) {
		lane[i] = ground.data() + SPACE + i * (SPACE + vectors);
		arrays.push_back({(char *)lane[i], (char *)(lane[i] + vectors)});
	}
	float4 *a = lane[0], *b = lane[1], *c = lane[2], out;
	float single;
	printf("{");
	run("memory_read", blocks, [&] { memory_read(a, &out); }, ", ");
	run("memory_write", blocks, [&] { memory_write(c, 1); }, ", ");
	run("memory_copy", blocks, [&] { memory_copy(a, b); }, ", ");
	run("memory_add", blocks, [&] { memory_add(a, b, c); }, ", ");
	run("l2_read", blocks, [&] { l2_read(a, &out, vectors, turns); }, ", ");
	run("lds_read", blocks, [&] { lds_read(&out, 1, turns); }, ", ");
	run("fma_f32", blocks, [&] { fma_f32(&single, 0.5f, 0.5f, turns); }, ", ");
	run("fma_f16", blocks, [&] { fma_f16(&single, 1, 1, turns); }, ", ");
	run("fma_f64", blocks, [&] { fma_f64(&single, 0.5, 0.5, turns); }, ", ");
	run("empty", blocks, [&] { empty(); }, "}\n");
}
