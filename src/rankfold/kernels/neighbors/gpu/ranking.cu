// How many rows come before thresholds of others: see ranking.py, and ``count_nearer`` of ranks.py.
//
// A warp has a row, its lanes go through the products of it. Thresholds are sorted by (key, id), so that a pair
// which comes before one comes before all that follow: it is noted at the first, and notes are added up at the end.

// The first of k sorted limits that is above a bound, or, without STRICTLY, not below it.
template <bool STRICTLY, typename P> __device__ __forceinline__ int first_above(const P* limits, int k, P bound) {
    int from = 0, to = k;
    while (from < to) {
        const int middle = (from + to) / 2;
        if (STRICTLY ? bound < limits[middle] : bound <= limits[middle]) to = middle;
        else from = middle + 1;
    }
    return from;
}

// products (rows_x, rows_y); near and far: what a row brings to a lower and to an upper bound; low, high: below which
// an upper bound is of a pair that surely comes before a threshold, above which a lower bound is of one that surely
// does not. ``open``: pairs of each row that were measured.
template <typename P, typename T>
__global__ void __launch_bounds__(128, 6)
count_nearer(const P* __restrict__ products, i64 rows_x, i64 rows_y, const P* __restrict__ near_x,
             const P* __restrict__ far_x, const P* __restrict__ near_y, const P* __restrict__ far_y,
             const T* __restrict__ x, i64 x_pitch, const T* __restrict__ y, i64 y_pitch, int d,
             const double* __restrict__ scale_x, const double* __restrict__ scale_y, int metric, i64 first,
             const i64* __restrict__ own, int k, const P* __restrict__ low, i64 low_pitch, const P* __restrict__ high,
             i64 high_pitch, const double* __restrict__ keys, i64 keys_pitch, const i64* __restrict__ ids,
             i64 ids_pitch, i64* counts, i64 counts_pitch, int* open) {
    SHARED_MEMORY(int, memory);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 row = i64(blockIdx.x) * 4 + warp;
    if (row >= rows_x) return;
    int* const notes = memory + warp * (k + 1);
    for (int s = lane; s <= k; s += 32) notes[s] = 0;
    __syncwarp();

    const P* const surely = low + row * low_pitch;
    const P* const possibly = high + row * high_pitch;
    const double* const row_keys = keys + row * keys_pitch;
    const i64* const row_ids = ids + row * ids_pitch;
    const i64 itself = own[row] - first;
    int pairs = 0;
    for (i64 start = 0; start < rows_y; start += 32) {
        const i64 column = start + lane;
        int from = k, to = k;
        if (column < rows_y && column != itself) {
            const P product = products[row * rows_y + column];
            const P least = near_x[row] + near_y[column] - product, most = far_x[row] + far_y[column] - product;
            if (least <= possibly[k - 1]) {
                from = first_above<false>(possibly, k, least);
                to = first_above<true>(surely, k, most);
            }
        }
        const bool unsure = from < to;
        if (!unsure && to < k) atomicAdd(notes + to, 1);
        // What is left open is measured by halves of the warp, two pairs at a time.
        u32 left = __ballot_sync(WARP, unsure);
        while (left) {
            const int one = __ffs(left) - 1;
            left &= left - 1;
            const int other = left ? __ffs(left) - 1 : one;
            left &= left ? left - 1 : 0u;
            const i64 place = start + (lane < 16 ? one : other);
            const double key = measure(x + row * x_pitch, y + place * y_pitch, d, scale_x[row], scale_y[place], metric, lane);
            const double of_other = __shfl_sync(WARP, key, 16);
            const double of_one = __shfl_sync(WARP, key, 0);
            if (lane == one || (lane == other && other != one)) {
                const double mine = lane == one ? of_one : of_other;
                while (from < to) {
                    const int middle = (from + to) / 2;
                    if (nearer(mine, first + column, row_keys[middle], row_ids[middle])) to = middle;
                    else from = middle + 1;
                }
                if (to < k) atomicAdd(notes + to, 1);
                pairs++;
            }
            __syncwarp();
        }
    }
    __syncwarp();

    // Sums up to each threshold: a lane has a run of them.
    const int run = (k + 31) / 32, begin = min(k, lane * run), end = min(k, begin + run);
    int sum = 0;
    for (int s = begin; s < end; s++) sum += notes[s];
    int before = 0;
    for (int each = 0; each < 32; each++) {
        const int theirs = __shfl_sync(WARP, sum, each);
        if (each < lane) before += theirs;
    }
    for (int s = begin; s < end; s++) {
        before += notes[s];
        counts[row * counts_pitch + s] += before;
    }
#pragma unroll
    for (int far = 16; far; far /= 2) pairs += __shfl_xor_sync(WARP, pairs, far);
    if (lane == 0) open[row] = pairs;
}
