// Distances of pairs of rows by the one sum that lists.py fixes: what comes before every .cu file of neighbors.

enum Metric { EUCLIDEAN, SQEUCLIDEAN, COSINE, INNER_PRODUCT };

// The key of a pair by 16 lanes: lane t adds elements t, t + 16, ... in order, and lanes are added pairwise. The
// contract rounds every product and every sum.
template <typename T>
__device__ __forceinline__ double measure(const T* x, const T* y, int d, double scale_x, double scale_y, int metric,
                                          int lane) {
    double total = 0;
    const bool scaled = metric == COSINE;
    for (int t = lane % 16; t < d; t += 16) {
        const double a = scaled ? __dmul_rn(widen(x[t]), scale_x) : widen(x[t]);
        const double b = scaled ? __dmul_rn(widen(y[t]), scale_y) : widen(y[t]);
        const double apart = __dsub_rn(a, b);
        total = __dadd_rn(total, metric == INNER_PRODUCT ? __dmul_rn(a, b) : __dmul_rn(apart, apart));
    }
#pragma unroll
    for (int far = 8; far; far /= 2) total = __dadd_rn(total, __shfl_xor_sync(WARP, total, far));
    if (metric == INNER_PRODUCT) return -total;
    if (metric == COSINE) return scale_x == 0 || scale_y == 0 ? 1.0 : __dmul_rn(total, 0.5);
    return metric == EUCLIDEAN ? __dsqrt_rn(total) : total;
}

__device__ __forceinline__ bool nearer(double key, i64 id, double other, i64 other_id) {
    return key < other || (key == other && id < other_id);
}
