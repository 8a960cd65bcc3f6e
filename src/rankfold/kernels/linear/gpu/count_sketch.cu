// Rows added to buckets: see count_sketch.py.
//
// A thread takes one column of every SHARES-th bucket, and rows in order: no atomic operation, one order. A row is
// read by one of the SHARES blocks that look at its bucket.

template <typename T>
__global__ void __launch_bounds__(128, 4)
add_to_buckets(const T* __restrict__ x, i64 row_step, i64 column_step, i64 rows, i64 columns,
               const i64* __restrict__ buckets, const T* __restrict__ factors, T* sums, i64 sums_pitch) {
    const i64 column = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    for (i64 row = 0; row < rows; row++) {
        const i64 bucket = buckets[row];
        if (bucket % gridDim.y == blockIdx.y)
            sums[bucket * sums_pitch + column] += factors[row] * x[row * row_step + column * column_step];
    }
}
