// CUB's histogram, for perf/order.py: int32 elements, one bin for each number, 32-bit counters; and its top-k, where
// CUB has one: the keys alone, in any order.

#include "cub_interface.cuh"

#define COUNTS(bins)                                                                                              \
  FUNCTION(counts_##bins, std::int32_t, std::int32_t,                                                             \
           cub::DeviceHistogram::HistogramEven(temp, *temp_bytes, in, out, bins + 1, 0, bins, static_cast<int>(n), s))

COUNTS(256)
COUNTS(65536)

#if __has_include(<cub/device/device_topk.cuh>)
#  include <cub/device/device_topk.cuh>
#  include <cuda/stream_ref>

#  include <cuda/__execution/determinism.h>
#  include <cuda/__execution/output_ordering.h>
#  include <cuda/__execution/require.h>
#  include <cuda/std/__execution/env.h>

template <typename T>
int topk(void* temp, size_t* temp_bytes, const T* in, T* out, long long n, int k, cudaStream_t s)
{
  namespace execution = cuda::execution;
  auto unordered      = execution::require(execution::determinism::not_guaranteed, execution::output_ordering::unsorted);
  auto environment    = cuda::std::execution::env{cuda::stream_ref{s}, unordered};
  return cub::DeviceTopK::MaxKeys(temp, *temp_bytes, in, out, n, static_cast<long long>(k), environment);
}

#  define TOPK(k, suffix, T) FUNCTION(topk_##k##_##suffix, T, T, topk(temp, temp_bytes, in, out, n, k, s))
#  define TOPKS(suffix, T) TOPK(64, suffix, T) TOPK(2048, suffix, T)

TOPKS(int8, std::int8_t)
TOPKS(int32, std::int32_t)
TOPKS(int64, std::int64_t)
TOPKS(float16, __half)
TOPKS(float32, float)
#endif
