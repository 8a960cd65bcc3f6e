// Rows that find their places among vertices which stay: see rows.py. A thread takes a row through all epochs.

template <int D>
__global__ void __launch_bounds__(128)
place_rows(const float* __restrict__ positions, i64 count, int width, const i64* __restrict__ neighbors,
           const u32* __restrict__ phases, const u64* __restrict__ keys, const float* __restrict__ start, i64 rows,
           int k, const float* __restrict__ attraction, const float* __restrict__ repulsion,
           const float* __restrict__ rates, int epochs, int negatives, float* __restrict__ room,
           float* __restrict__ out, i64 out_pitch) {
    const i64 place = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (place >= rows) return;
    const int columns = D ? D : width;
    const Positions all = {positions, count, columns};
    const u64 words = u64((negatives + 1) / 2);
    Vector<D> x(room + 2 * place * columns), push(room + (2 * place + 1) * columns);
    for (int d = 0; d < columns; d++) x[d] = start[place * columns + d];
    for (int epoch = 1; epoch <= epochs; epoch++) {
        const float rate = rates[epoch - 1];
        const u64 own = mix(keys[place] + STEP * u64(epoch));
        for (int edge = 0; edge < k; edge++) {
            if (!pulls(u32(epoch), phases[place * k + edge])) continue;
            const float* const end = all.of(neighbors[place * k + edge]);
            const float factor = value_of(attraction, square_of(x, end, columns));
            for (int d = 0; d < columns; d++) {
                const float force = limited(__fmul_rn(factor, __fsub_rn(x[d], end[d])));
                x[d] = __fadd_rn(x[d], __fmul_rn(rate, force));
            }
            repel(x, push, all, repulsion, own + STEP * (u64(edge) * words + 1), negatives, rate, columns);
        }
    }
    for (int d = 0; d < columns; d++) out[place * out_pitch + d] = x[d];
}
