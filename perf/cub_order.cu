// CUB's histogram, for perf/order.py: int32 elements, one bin for each number, 32-bit counters.

#include "cub_interface.cuh"

#define COUNTS(bins)                                                                                              \
  FUNCTION(counts_##bins, std::int32_t, std::int32_t,                                                             \
           cub::DeviceHistogram::HistogramEven(temp, *temp_bytes, in, out, bins + 1, 0, bins, static_cast<int>(n), s))

COUNTS(256)
COUNTS(65536)
