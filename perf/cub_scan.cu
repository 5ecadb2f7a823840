// CUB's device-wide scans behind a C interface, one function per operation and element type, for perf/scan.py.
//
//   int f(void* temp, size_t* temp_bytes, const void* in, void* out, long long n, cudaStream_t stream)
//
// Contract of every function: with temp == nullptr it only writes *temp_bytes; otherwise it launches and allocates nothing.
// The result is a cudaError_t. Counts below 2**31 use CUB's 32-bit offsets, as a C++ program with an int count would.
//
// Input and output have the same type. CUB accumulates in what `plus` of two elements gives: int for 8- and 16-bit integers,
// the type itself for the rest; __half and __nv_bfloat16 are rounded at every step, so long sums of them are not those of cutesync.

#include <cub/cub.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <climits>
#include <cstdint>

#define FUNCTION(name, T, CALL)                                                                                \
  extern "C" int name(void* temp, size_t* temp_bytes, const void* in_, void* out_, long long n, cudaStream_t s) \
  {                                                                                                            \
    auto in  = static_cast<const T*>(in_);                                                                     \
    auto out = static_cast<T*>(out_);                                                                          \
    return CALL;                                                                                               \
  }

template <class T, class N>
cudaError_t sum(void* temp, size_t* temp_bytes, const T* in, T* out, N n, cudaStream_t s)
{
  return cub::DeviceScan::InclusiveSum(temp, *temp_bytes, in, out, n, s);
}

#define SUM(suffix, T) \
  FUNCTION(sum_##suffix, T, \
           n <= INT_MAX ? sum(temp, temp_bytes, in, out, static_cast<int>(n), s) : sum(temp, temp_bytes, in, out, n, s))

SUM(int8, std::int8_t)
SUM(uint8, std::uint8_t)
SUM(int16, std::int16_t)
SUM(int32, std::int32_t)
SUM(int64, std::int64_t)
SUM(float16, __half)
SUM(bfloat16, __nv_bfloat16)
SUM(float32, float)
SUM(float64, double)

FUNCTION(exclusive_float32, float, cub::DeviceScan::ExclusiveSum(temp, *temp_bytes, in, out, static_cast<int>(n), s))

struct Max
{
  __host__ __device__ float operator()(float a, float b) const { return a < b ? b : a; }
};

FUNCTION(max_float32, float, cub::DeviceScan::InclusiveScan(temp, *temp_bytes, in, out, Max{}, static_cast<int>(n), s))

struct Product
{
  __host__ __device__ std::int32_t operator()(std::int32_t a, std::int32_t b) const
  {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
  }
};

FUNCTION(mul_int32, std::int32_t, cub::DeviceScan::InclusiveScan(temp, *temp_bytes, in, out, Product{}, static_cast<int>(n), s))

struct Fill  // the last element that is not zero
{
  __host__ __device__ std::int32_t operator()(std::int32_t a, std::int32_t b) const { return b ? b : a; }
};

FUNCTION(fill_int32, std::int32_t, cub::DeviceScan::InclusiveScan(temp, *temp_bytes, in, out, Fill{}, static_cast<int>(n), s))

extern "C" int cccl_version() { return CCCL_VERSION; }
