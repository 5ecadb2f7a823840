// CUB's device-wide reductions, for perf/reduce.py.

#include "cub_interface.cuh"

#include <thrust/iterator/discard_iterator.h>

template <class T, class N>
cudaError_t sum(void* temp, size_t* temp_bytes, const T* in, T* out, N n, cudaStream_t s)
{
  return cub::DeviceReduce::Sum(temp, *temp_bytes, in, out, n, s);
}

SUMS

struct Square
{
  __host__ __device__ float operator()(float x) const { return x * x; }
};

FUNCTION(sumsq_float32, float, float,
         cub::DeviceReduce::TransformReduce(
           temp, *temp_bytes, in, out, static_cast<int>(n), cuda::std::plus<>{}, Square{}, 0.0f, s))

FUNCTION(argmax_float32, float, std::int64_t,
         cub::DeviceReduce::ArgMax(temp, *temp_bytes, in, thrust::make_discard_iterator(), out, n, s))
