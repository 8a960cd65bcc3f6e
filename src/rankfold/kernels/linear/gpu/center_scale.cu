// Sums and squares of columns: see center_scale.py, measure.
//
// A thread takes one column of a run of rows, so that a warp reads 32 neighboring numbers of each row, UNDER_WAY
// rows at a time. Sums of runs are added up by the caller, in order.

constexpr int UNDER_WAY = 4;

template <typename T>
__global__ void __launch_bounds__(128, 8)
measure(const T* __restrict__ x, i64 row_step, i64 column_step, i64 rows, i64 columns,
        const double* __restrict__ shift, double pow2_scale, int run, double* __restrict__ sums,
        double* __restrict__ squares) {
    const i64 column = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const i64 first = i64(blockIdx.y) * run, end = first + run < rows ? first + run : rows;
    const double about = shift[column];
    const T* const here = x + column * column_step;
    double sum[UNDER_WAY] = {}, square[UNDER_WAY] = {};
    for (i64 row = first; row < end; row += UNDER_WAY) {
        T numbers[UNDER_WAY];
#pragma unroll
        for (int i = 0; i < UNDER_WAY; i++) numbers[i] = row + i < end ? here[(row + i) * row_step] : T(0);
#pragma unroll
        for (int i = 0; i < UNDER_WAY; i++) {
            const double d = row + i < end ? (widen(numbers[i]) - about) * pow2_scale : 0.0;
            sum[i] += d;
            square[i] += d * d;
        }
    }
    sums[blockIdx.y * columns + column] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    squares[blockIdx.y * columns + column] = (square[0] + square[1]) + (square[2] + square[3]);
}

// A thread writes one number: formed in float64 and rounded once, with no product and sum in one step.
template <typename T, typename Out>
__global__ void __launch_bounds__(128, 8)
subtract(const T* x, i64 x_pitch, i64 rows, i64 columns, const double* __restrict__ shift,
         const double* __restrict__ scale, Out* out, i64 out_pitch) {
    const i64 column = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const double about = shift[column], factor = scale[column];
    for (i64 row = blockIdx.y; row < rows; row += gridDim.y)
        narrow(__dmul_rn(__dsub_rn(widen(x[row * x_pitch + column]), about), factor), out + row * out_pitch + column);
}
