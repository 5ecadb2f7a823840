// CUB's device-wide reductions behind a C interface, one function per operation and element type, for perf/reduce.py.
//
//   int f(void* temp, size_t* temp_bytes, const void* in, void* out, long long n, cudaStream_t stream)
//
// Contract of every function: with temp == nullptr it only writes *temp_bytes; otherwise it launches and allocates nothing.
// The result is a cudaError_t. Counts below 2**31 use CUB's 32-bit offsets, as a C++ program with an int count would.

#include <cub/cub.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <thrust/iterator/discard_iterator.h>

#include <climits>
#include <cstdint>

#define FUNCTION(name, T, R, CALL)                                                                             \
  extern "C" int name(void* temp, size_t* temp_bytes, const void* in_, void* out_, long long n, cudaStream_t s) \
  {                                                                                                            \
    auto in  = static_cast<const T*>(in_);                                                                     \
    auto out = static_cast<R*>(out_);                                                                          \
    return CALL;                                                                                               \
  }

template <class T, class N>
cudaError_t sum(void* temp, size_t* temp_bytes, const T* in, T* out, N n, cudaStream_t s)
{
  return cub::DeviceReduce::Sum(temp, *temp_bytes, in, out, n, s);
}

#define SUM(suffix, T) \
  FUNCTION(sum_##suffix, T, T, \
           n <= INT_MAX ? sum(temp, temp_bytes, in, out, static_cast<int>(n), s) : sum(temp, temp_bytes, in, out, n, s))

SUM(int8, std::int8_t)
SUM(int16, std::int16_t)
SUM(int32, std::int32_t)
SUM(int64, std::int64_t)
SUM(float16, __half)
SUM(bfloat16, __nv_bfloat16)
SUM(float32, float)
SUM(float64, double)

struct Square
{
  __host__ __device__ float operator()(float x) const { return x * x; }
};

FUNCTION(sumsq_float32, float, float,
         cub::DeviceReduce::TransformReduce(
           temp, *temp_bytes, in, out, static_cast<int>(n), cuda::std::plus<>{}, Square{}, 0.0f, s))

FUNCTION(argmax_float32, float, std::int64_t,
         cub::DeviceReduce::ArgMax(temp, *temp_bytes, in, thrust::make_discard_iterator(), out, n, s))

extern "C" int cccl_version() { return CCCL_VERSION; }
