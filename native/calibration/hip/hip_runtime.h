/* Lets nvcc and NVRTC read the HIP sources of this folder: CUDA's names of what they use are HIP's. hipcc never sees it. */
#pragma once
#ifndef __CUDACC_RTC__ /* NVRTC knows blockIdx, float4 and fmaf without a header */
#include <cuda_runtime.h>
#endif
