/* Runs a block as threads of the host: what the testbeds use of HIP. Blocks run one after the other. */
#pragma once
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
struct Index { unsigned x; };
inline thread_local Index threadIdx, blockIdx;
inline std::barrier<> *block_barrier;
inline void __syncthreads() { block_barrier->arrive_and_wait(); }
inline unsigned atomicAdd(unsigned *at, unsigned add) { return std::atomic_ref<unsigned>(*at).fetch_add(add); }

template <class Kernel, class... Arguments> void launch(unsigned blocks, unsigned threads, Kernel kernel, Arguments... arguments)
{
	for (unsigned block = 0; block < blocks; block++) {
		std::barrier<> together(threads);
		block_barrier = &together;
		std::vector<std::jthread> running;
		for (unsigned thread = 0; thread < threads; thread++)
			running.emplace_back([=] {
				threadIdx = {thread};
				blockIdx = {block};
				kernel(arguments...);
			});
	}
}
