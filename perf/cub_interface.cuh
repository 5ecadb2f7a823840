// CUB's device-wide operations behind a C interface, one function per operation and element type, for the families' cub_*.cu.
//
//   int f(void* temp, size_t* temp_bytes, const void* in, void* out, long long n, cudaStream_t stream)
//
// Contract of every function: with temp == nullptr it only writes *temp_bytes; otherwise it launches and allocates nothing.
// The result is a cudaError_t.

#pragma once

#include <cub/cub.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <climits>
#include <cstdint>

// CALL sees temp, temp_bytes, in (const T*), out (R*), n and s.
#define FUNCTION(name, T, R, CALL)                                                                             \
  extern "C" int name(void* temp, size_t* temp_bytes, const void* in_, void* out_, long long n, cudaStream_t s) \
  {                                                                                                            \
    auto in  = static_cast<const T*>(in_);                                                                     \
    auto out = static_cast<R*>(out_);                                                                          \
    return CALL;                                                                                               \
  }

// sum_<type> by the family's template `sum`. Counts below 2**31 use CUB's 32-bit offsets, as a C++ program with an int count would.
#define SUM(suffix, T) \
  FUNCTION(sum_##suffix, T, T, \
           n <= INT_MAX ? sum(temp, temp_bytes, in, out, static_cast<int>(n), s) : sum(temp, temp_bytes, in, out, n, s))

#define SUMS                    \
  SUM(int8, std::int8_t)        \
  SUM(int16, std::int16_t)      \
  SUM(int32, std::int32_t)      \
  SUM(int64, std::int64_t)      \
  SUM(float16, __half)          \
  SUM(bfloat16, __nv_bfloat16)  \
  SUM(float32, float)           \
  SUM(float64, double)

extern "C" int cccl_version() { return CCCL_VERSION; }
