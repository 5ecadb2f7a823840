// CUB's selections, runs and operations by key, for perf/selection.py: int32 elements and lengths, 32-bit counts.

#include "cub_interface.cuh"

using Element = std::int32_t;

struct Positive
{
  __host__ __device__ bool operator()(Element value) const { return value > 0; }
};

struct Sum
{
  __host__ __device__ Element operator()(Element a, Element b) const { return a + b; }
};

struct Equal
{
  __host__ __device__ bool operator()(Element a, Element b) const { return a == b; }
};

// The arrays' parameters stand behind the call.
#define ARRAYS(name, CALL, ...)                                                                       \
  extern "C" int name(void* temp, size_t* temp_bytes, __VA_ARGS__, long long count, cudaStream_t s) \
  {                                                                                                   \
    const int n = static_cast<int>(count);                                                            \
    return CALL;                                                                                      \
  }

ARRAYS(callable, cub::DeviceSelect::If(temp, *temp_bytes, x, out, found, n, Positive{}, s),
       const Element* x, Element* out, Element* found)
ARRAYS(mask, cub::DeviceSelect::Flagged(temp, *temp_bytes, x, where, out, found, n, s),
       const Element* x, const bool* where, Element* out, Element* found)
ARRAYS(unique, cub::DeviceSelect::Unique(temp, *temp_bytes, x, out, found, n, s),
       const Element* x, Element* out, Element* found)
ARRAYS(lengths, cub::DeviceRunLengthEncode::Encode(temp, *temp_bytes, x, out, runs, found, n, s),
       const Element* x, Element* out, Element* found, Element* runs)
ARRAYS(sums, cub::DeviceReduce::ReduceByKey(temp, *temp_bytes, keys, first, x, out, found, Sum{}, n, s),
       const Element* keys, const Element* x, Element* out, Element* found, Element* first)
ARRAYS(running, cub::DeviceScan::InclusiveSumByKey(temp, *temp_bytes, keys, x, out, n, Equal{}, s),
       const Element* keys, const Element* x, Element* out)
