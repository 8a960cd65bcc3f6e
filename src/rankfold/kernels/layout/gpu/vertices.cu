// Vertices that their own edges move: see vertices.py.
//
// A thread takes a vertex, and edges one after the other: each reads the positions of its other end and of the
// random vertices, anywhere in device memory. Work 20 (2 + negatives) d operations an edge that pulls.

struct Spread {
    const float* closeness;   // none where density does not count
    const float* pushes;
    float slope;
};

__device__ __forceinline__ float spread_factor(const Spread& spread, float square, float attraction, i64 vertex,
                                               i64 other, u32 phase) {
    if (!(square > 0)) return 0;
    const float* const one = spread.pushes + 2 * vertex;
    const float* const two = spread.pushes + 2 * other;
    const float close = value_of(spread.closeness, square), steep = 0.5f * attraction;
    const float share = __fsub_rn(1.0f, __fmul_rn(spread.slope, __fsub_rn(1.0f, close)));
    const float by_closeness = __fmul_rn(share, __fadd_rn(one[0], two[0]));
    const float by_steepness = __fmul_rn(steep, __fadd_rn(one[1], two[1]));
    return __fdiv_rn(__fmul_rn(close, __fsub_rn(by_closeness, by_steepness)), float(phase) * 2.3283064365386963e-10f);
}

template <typename Index, int D>
__global__ void __launch_bounds__(128)
move_vertices(const float* __restrict__ positions, i64 count, int width, const i64* __restrict__ vertices, i64 moved,
              const i64* __restrict__ pointers, const Index* __restrict__ neighbors, const u32* __restrict__ phases,
              const float* __restrict__ attraction, const float* __restrict__ repulsion,
              const float* __restrict__ closeness, const float* __restrict__ pushes, float slope, u32 epoch, u64 key,
              float rate, int negatives, float* __restrict__ room, float* __restrict__ out, i64 out_pitch) {
    const i64 place = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (place >= moved) return;
    const int columns = D ? D : width;
    const Positions all = {positions, count, columns};
    const Spread spread = {closeness, pushes, slope};
    const i64 vertex = vertices[place], first = pointers[place], last = pointers[place + 1];
    const u64 own = mix(key + STEP * u64(vertex + 1)), words = u64((negatives + 1) / 2);
    Vector<D> x(room + 2 * place * columns), push(room + (2 * place + 1) * columns);
    for (int d = 0; d < columns; d++) x[d] = all.of(vertex)[d];
    i64 edge = first - 1 + i64(((own >> 32) * u64(last - first)) >> 32);   // before the one that is drawn
    for (i64 step = first; step < last; step++) {
        edge = edge + 1 < last ? edge + 1 : first;
        const u32 phase = phases[edge];
        if (!pulls(epoch, phase)) continue;
        const i64 other = neighbors[edge];
        const float* const end = all.of(other);
        for (int side = 0; side < 2; side++) {
            const float square = square_of(x, end, columns), factor = value_of(attraction, square);
            const float apart = closeness ? spread_factor(spread, square, factor, vertex, other, phase) : 0.0f;
            for (int d = 0; d < columns; d++) {
                const float difference = __fsub_rn(x[d], end[d]);
                float force = limited(__fmul_rn(factor, difference));
                if (closeness) force = __fadd_rn(force, limited(__fmul_rn(apart, difference)));
                x[d] = __fadd_rn(x[d], __fmul_rn(rate, force));
            }
        }
        repel(x, push, all, repulsion, own + STEP * (u64(edge - first) * words + 1), negatives, rate, columns);
    }
    for (int d = 0; d < columns; d++) out[place * out_pitch + d] = x[d];
}
