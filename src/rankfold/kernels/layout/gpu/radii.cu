// Mean squared lengths of edges by closeness: see radii.py. A thread takes a vertex, and its edges in order.

template <typename Index>
__global__ void __launch_bounds__(128)
measure_radii(const float* __restrict__ positions, int width, const float* __restrict__ own, i64 count,
              const i64* __restrict__ pointers, const Index* __restrict__ neighbors,
              const float* __restrict__ closeness, float* __restrict__ out, i64 out_pitch) {
    const i64 place = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (place >= count) return;
    const float* const x = own + place * width;
    double squares = 0, close = 0;
    for (i64 edge = pointers[place]; edge < pointers[place + 1]; edge++) {
        const float square = square_of(x, positions + i64(neighbors[edge]) * width, width);
        const float value = square > 0 ? value_of(closeness, square) : 1.0f;
        squares = __dadd_rn(squares, double(__fmul_rn(value, square)));
        close = __dadd_rn(close, double(value));
    }
    out[place * out_pitch] = close > 0 ? float(squares / close) : 0.0f;
    out[place * out_pitch + 1] = float(close);
}
