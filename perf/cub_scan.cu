// CUB's device-wide scans, for perf/scan.py.
//
// Input and output have the same type. CUB accumulates in what `plus` of two elements gives: int for 8- and 16-bit integers,
// the type itself for the rest; __half and __nv_bfloat16 are rounded at every step, so long sums of them are not those of cutesync.

#include "cub_interface.cuh"

template <class T, class N>
cudaError_t sum(void* temp, size_t* temp_bytes, const T* in, T* out, N n, cudaStream_t s)
{
  return cub::DeviceScan::InclusiveSum(temp, *temp_bytes, in, out, n, s);
}

SUMS
SUM(uint8, std::uint8_t)

FUNCTION(exclusive_float32, float, float, cub::DeviceScan::ExclusiveSum(temp, *temp_bytes, in, out, static_cast<int>(n), s))

struct Max
{
  __host__ __device__ float operator()(float a, float b) const { return a < b ? b : a; }
};

FUNCTION(max_float32, float, float, cub::DeviceScan::InclusiveScan(temp, *temp_bytes, in, out, Max{}, static_cast<int>(n), s))

struct Product
{
  __host__ __device__ std::int32_t operator()(std::int32_t a, std::int32_t b) const
  {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
  }
};

FUNCTION(mul_int32, std::int32_t, std::int32_t, cub::DeviceScan::InclusiveScan(temp, *temp_bytes, in, out, Product{}, static_cast<int>(n), s))

struct Fill  // the last element that is not zero
{
  __host__ __device__ std::int32_t operator()(std::int32_t a, std::int32_t b) const { return b ? b : a; }
};

FUNCTION(fill_int32, std::int32_t, std::int32_t, cub::DeviceScan::InclusiveScan(temp, *temp_bytes, in, out, Fill{}, static_cast<int>(n), s))
