// Rows of nonnegative least squares: see nnls.py.

// Cyclic coordinate descent ------------------------------------------------------------------------------
//
// A group of LANES threads shares ROWS rows. Coordinate c of a row is kept in a register of lane c % LANES; G lies
// in shared memory, each row of it in LANES shares, so that one load of 16 bytes serves ROWS * 16 / sizeof(T)
// multiplications. Partial slopes of a coordinate meet by shuffles, in one order: a row depends on K and LANES
// alone. Numbers of device memory are read and written once, 3 k a row; work 2 k^2 flops a row and sweep.
// Coordinates beyond k have no curvature, and stay zero.

template <typename T, int K, int LANES, int ROWS, int THREADS> struct DescentSizes {
    static constexpr int OWN = K / LANES;                          // coordinates of a lane
    static constexpr int SHARE = OWN + Pack<T>::N;                 // shares of lanes begin in different banks
    static constexpr int TILE = THREADS / LANES * ROWS;            // rows of a block
    static constexpr int PITCH = TILE + Pack<T>::N;
    static_assert(K % (LANES * Pack<T>::N) == 0 && ROWS % Pack<T>::N == 0 && 32 % LANES == 0, "whole packs");
};

// The same coordinates of all rows of a block side by side.
template <typename S, typename T, int K, int THREADS>
__device__ __forceinline__ void load_turned(T* tile, const T* rows, i64 pitch, i64 first, i64 count, int k) {
    for (int i = threadIdx.x; i < S::TILE * K; i += THREADS) {
        const int row = i / K, c = i % K;
        tile[c * S::PITCH + row] = c < k && first + row < count ? rows[(first + row) * pitch + c] : T(0);
    }
}

template <typename T, int K, int LANES, int ROWS, int THREADS>
__global__ void __launch_bounds__(THREADS, 384 / THREADS)
descend_rows(const T* __restrict__ gram, const T* __restrict__ b, i64 b_pitch, T* __restrict__ w, i64 w_pitch,
             i64 count, int k, int sweeps) {
    typedef DescentSizes<T, K, LANES, ROWS, THREADS> S;
    constexpr int N = Pack<T>::N;
    SHARED_MEMORY(T, shares);
    T* const tile = shares + K * LANES * S::SHARE;
    T* const inverse = tile + K * S::PITCH;
    const int lane = threadIdx.x % LANES, own = threadIdx.x / LANES * ROWS;
    const i64 first = i64(blockIdx.x) * S::TILE;

    for (int i = threadIdx.x; i < K * K; i += THREADS) {
        const int t = i / K, c = i % K;
        shares[(t * LANES + c % LANES) * S::SHARE + c / LANES] = t < k && c < k ? gram[t * k + c] : T(0);
    }
    for (int t = threadIdx.x; t < K; t += THREADS) {
        const T curvature = t < k ? gram[t * k + t] : T(0);
        inverse[t] = curvature > 0 ? T(1) / curvature : T(0);
    }
    load_turned<S, T, K, THREADS>(tile, w, w_pitch, first, count, k);
    __syncthreads();
    T x[ROWS][S::OWN];
#pragma unroll
    for (int j = 0; j < S::OWN; j++) {
#pragma unroll
        for (int i = 0; i < ROWS; i += N) {
            const Pack<T> piece = load_pack(tile + (j * LANES + lane) * S::PITCH + own + i);
#pragma unroll
            for (int n = 0; n < N; n++) x[i + n][j] = piece.of[n];
        }
    }
    __syncthreads();
    load_turned<S, T, K, THREADS>(tile, b, b_pitch, first, count, k);
    __syncthreads();

#pragma unroll 1
    for (int sweep = 0; sweep < sweeps; sweep++) {
#pragma unroll
        for (int j = 0; j < S::OWN; j++) {
#pragma unroll 1
            for (int owner = 0; owner < LANES; owner++) {
                const int t = j * LANES + owner;
                T slope[ROWS];
#pragma unroll
                for (int i = 0; i < ROWS; i += N) {
                    const Pack<T> piece = load_pack(tile + t * S::PITCH + own + i);
#pragma unroll
                    for (int n = 0; n < N; n++) slope[i + n] = lane == owner ? -piece.of[n] : T(0);
                }
#pragma unroll
                for (int c = 0; c < S::OWN; c += N) {
                    const Pack<T> piece = load_pack(shares + (t * LANES + lane) * S::SHARE + c);
#pragma unroll
                    for (int n = 0; n < N; n++)
#pragma unroll
                        for (int i = 0; i < ROWS; i++) slope[i] += piece.of[n] * x[i][c + n];
                }
#pragma unroll
                for (int far = LANES / 2; far; far /= 2)
#pragma unroll
                    for (int i = 0; i < ROWS; i++) slope[i] += __shfl_xor_sync(WARP, slope[i], far);
                const T length = lane == owner ? inverse[t] : T(0);
#pragma unroll
                for (int i = 0; i < ROWS; i++) {
                    const T next = x[i][j] - slope[i] * length;
                    x[i][j] = next > 0 ? next : T(0);
                }
            }
        }
    }

    __syncwarp();  // only the lanes of a group have read the right sides that their rows replace
#pragma unroll
    for (int j = 0; j < S::OWN; j++)
#pragma unroll
        for (int i = 0; i < ROWS; i++) tile[(j * LANES + lane) * S::PITCH + own + i] = x[i][j];
    __syncthreads();
    for (int i = threadIdx.x; i < S::TILE * K; i += THREADS) {
        const int row = i / K, c = i % K;
        if (c < k && first + row < count) w[(first + row) * w_pitch + c] = tile[c * S::PITCH + row];
    }
}

// Block principal pivoting -------------------------------------------------------------------------------
//
// A warp takes a row: exchanges until no coordinate is infeasible, each with a Cholesky factor of the free part.
// A row that is not solved within ``exchanges`` is left to an active set of which one coordinate changes at a time.

// The free part of G = L L', by rows of L, which takes p (p + 1) / 2 numbers.
__device__ __forceinline__ void factor_free(const double* gram, const double* ridge, int k, const int* at, int p,
                                               double* l, int lane) {
    for (int j = 0; j < p; j++) {
        double* const row_j = l + j * (j + 1) / 2;
        double pivot = 0;
        for (int i = j + lane; i < p; i += 32) {
            double* const row_i = l + i * (i + 1) / 2;
            double rest = gram[at[i] * k + at[j]] + (i == j ? ridge[at[j]] : 0);
            for (int c = 0; c < j; c++) rest -= row_i[c] * row_j[c];
            if (i == j) pivot = rest;
            row_i[j] = rest;
        }
        pivot = __shfl_sync(WARP, pivot, 0);
        const double root = sqrt(pivot > ridge[at[j]] ? pivot : ridge[at[j]]);
        for (int i = j + lane; i < p; i += 32) l[i * (i + 1) / 2 + j] = i == j ? root : l[i * (i + 1) / 2 + j] / root;
        __syncwarp();
    }
}

// L L' x = x, in place.
__device__ __forceinline__ void solve_free(const double* l, int p, double* x, int lane) {
    for (int j = 0; j < p; j++) {
        const double found = x[j] / l[j * (j + 1) / 2 + j];
        __syncwarp();
        if (lane == 0) x[j] = found;
        for (int i = j + 1 + lane; i < p; i += 32) x[i] -= l[i * (i + 1) / 2 + j] * found;
        __syncwarp();
    }
    for (int j = p - 1; j >= 0; j--) {
        const double found = x[j] / l[j * (j + 1) / 2 + j];
        __syncwarp();
        if (lane == 0) x[j] = found;
        for (int i = lane; i < j; i += 32) x[i] -= l[j * (j + 1) / 2 + i] * found;
        __syncwarp();
    }
}

__device__ __forceinline__ double sum_of_warp(double x) {
#pragma unroll
    for (int far = 16; far; far /= 2) x += __shfl_xor_sync(WARP, x, far);
    return x;
}

// Larger than any cost or slope.
#define NEVER 1.7976931348623157e308

// The coordinate of a warp's lanes with the least value, lowest number first; -1 where all are NEVER.
__device__ __forceinline__ int least_of_warp(double& value, int at) {
#pragma unroll
    for (int far = 16; far; far /= 2) {
        const double other = __shfl_xor_sync(WARP, value, far);
        const int where = __shfl_xor_sync(WARP, at, far);
        if (other < value || (other == value && where < at)) value = other, at = where;
    }
    return value < NEVER ? at : -1;
}

// Where a coordinate is: at zero, between its bounds, at the upper one.
enum { LOW = 0, FREE = 1, TOP = 2 };

// A row as a warp solves it. All arrays but the first four are its own.
struct Row {
    const double* gram;
    const double* ridge;
    const double* sizes;
    const double* right;
    double* x;       // coordinates where free ones are solved and the others at their bounds
    double* packed;  // free ones alone
    double* ones;    // what they change by for a sum that is larger by one
    double* l;
    int* at;         // which are free
    int* state;
    double upper;
    int k, lane;
    bool bounded, simplex;

    // The best coordinate to be one alone.
    __device__ __forceinline__ int vertex() const {
        double value = NEVER;
        int best = k;
        for (int c = lane; c < k; c += 32) {
            const double cost = gram[c * k + c] / 2 - right[c];
            if (cost < value) value = cost, best = c;
        }
        return least_of_warp(value, best);
    }

    // Free coordinates in their order; how many.
    __device__ __forceinline__ int gather() const {
        int p = 0;
        for (int start = 0; start < k; start += 32) {
            const int c = start + lane;
            const bool here = c < k && state[c] == FREE;
            const u32 those = __ballot_sync(WARP, here);
            if (here) at[p + __popc(those & ((1u << lane) - 1))] = c;
            p += __popc(those);
        }
        __syncwarp();
        return p;
    }

    // ``x`` with p free coordinates where their slopes are zero; returns the multiplier of the sum.
    __device__ __forceinline__ double solve(int p) const {
        for (int i = lane; i < p; i += 32) {
            double rest = right[at[i]];
            if (bounded)
                for (int c = 0; c < k; c++)
                    if (state[c] == TOP) rest -= gram[at[i] * k + c] * upper;
            packed[i] = rest, ones[i] = 1;
        }
        factor_free(gram, ridge, k, at, p, l, lane);
        solve_free(l, p, packed, lane);
        double multiplier = 0;
        if (simplex) {
            solve_free(l, p, ones, lane);
            double total = 0, slope = 0;
            for (int i = lane; i < p; i += 32) total += packed[i], slope += ones[i];
            multiplier = (sum_of_warp(total) - 1) / sum_of_warp(slope);
            for (int i = lane; i < p; i += 32) packed[i] -= multiplier * ones[i];
        }
        for (int c = lane; c < k; c += 32) x[c] = state[c] == TOP ? upper : 0;
        __syncwarp();
        for (int i = lane; i < p; i += 32) x[at[i]] = packed[i];
        __syncwarp();
        return multiplier;
    }

    // By how much a coordinate at a bound would gain by leaving it; below zero where it loses.
    __device__ __forceinline__ double gain(int c, int p, double multiplier) const {
        double slope = multiplier - right[c] + ridge[c] * x[c];
        for (int i = 0; i < p; i++) slope += gram[c * k + at[i]] * packed[i];
        if (bounded)
            for (int i = 0; i < k; i++)
                if (state[i] == TOP) slope += gram[c * k + i] * upper;
        return state[c] == TOP ? slope : -slope;
    }

    // Block principal pivoting; whether it ended, with the solution in ``x``.
    __device__ __forceinline__ bool exchange(double tolerance, int* wrong, int retries_at_most, int exchanges) const {
        int retries = retries_at_most, fewest = k + 1;
        for (int exchange = 0; exchange < exchanges; exchange++) {
            int p = gather();
            if (simplex && p == 0) {
                const int best = vertex();
                if (lane == 0) at[0] = best, state[best] = FREE;
                p = 1;
                __syncwarp();
            }
            const double multiplier = solve(p);
            int infeasible = 0, last = -1;
            for (int start = 0; start < k; start += 32) {
                const int c = start + lane;
                bool bad = false;
                if (c < k) bad = state[c] == FREE ? x[c] < 0 || x[c] > upper
                                                  : gain(c, p, multiplier) > tolerance * sizes[c];
                if (c < k) wrong[c] = bad;
                const u32 those = __ballot_sync(WARP, bad);
                infeasible += __popc(those);
                if (those) last = start + 31 - __clz(those);
            }
            __syncwarp();
            const bool solved = infeasible == 0;
            if (solved) return true;
            bool all = true;
            if (infeasible < fewest) fewest = infeasible, retries = retries_at_most;
            else if (retries) retries--;
            else all = false;
            for (int c = lane; c < k; c += 32)
                if (wrong[c] && (all || c == last)) state[c] = state[c] != FREE ? FREE : x[c] > upper ? TOP : LOW;
            __syncwarp();
        }
        return false;
    }

    // An active set, one coordinate at a time, from ``own`` and into it.
    __device__ __forceinline__ void step(double* own, double tolerance, int steps) const {
        double total = 0;
        for (int c = lane; c < k; c += 32) own[c] = fmin(own[c], upper), total += own[c];
        total = sum_of_warp(total);
        const int best = simplex ? vertex() : -1;
        if (simplex)
            for (int c = lane; c < k; c += 32) own[c] = total > 0 ? own[c] / total : c == best ? 1 : 0;
        for (int c = lane; c < k; c += 32) state[c] = !(own[c] > 0) ? LOW : own[c] >= upper ? TOP : FREE;
        __syncwarp();
        for (int step = 0; step < steps; step++) {
            const int p = gather();
            const double multiplier = solve(p);
            double length = NEVER;  // to the bound that is met first
            int first = k;
            for (int c = lane; c < k; c += 32) {
                if (state[c] != FREE || (x[c] >= 0 && x[c] <= upper)) continue;
                const double far = x[c] < 0 ? own[c] / (own[c] - x[c]) : (upper - own[c]) / (x[c] - own[c]);
                if (far < length) length = far, first = c;
            }
            first = least_of_warp(length, first);
            if (first >= 0) {
                for (int c = lane; c < k; c += 32) {
                    if (state[c] == FREE) own[c] += length * (x[c] - own[c]);
                    if (c == first) state[c] = x[c] > upper ? TOP : LOW, own[c] = x[c] > upper ? upper : 0;
                }
                __syncwarp();
                continue;
            }
            double least = NEVER;  // minus the largest gain
            for (int c = lane; c < k; c += 32) {
                own[c] = x[c];
                if (state[c] == FREE) continue;
                const double over = gain(c, p, multiplier) - tolerance * sizes[c];
                if (over > 0 && -over < least) least = -over, first = c;
            }
            first = least_of_warp(least, first < 0 ? k : first);
            __syncwarp();
            if (first < 0) return;
            if (lane == 0) state[first] = FREE;
            __syncwarp();
        }
    }
};

__global__ void __launch_bounds__(32, 1)
solve_rows(const double* __restrict__ gram, const double* __restrict__ ridge, const double* __restrict__ sizes,
           double least, const double* __restrict__ b, i64 b_pitch, double* __restrict__ w, i64 w_pitch, i64 count,
           int k, double upper, int simplex, int retries_at_most, int exchanges, int steps, double* scratch) {
    SHARED_MEMORY(double, room);
    int* const whole = reinterpret_cast<int*>(room + 3 * k);
    const i64 factor_size = i64(k) * (k + 1) / 2;
    double* const l = scratch ? scratch + blockIdx.x * factor_size
                              : reinterpret_cast<double*>(whole + 3 * k + (k & 1));
    const int lane = threadIdx.x;
    Row self = {gram, ridge, sizes, nullptr, room, room + k, room + 2 * k, l, whole, whole + k,
                upper, k, lane, upper < NEVER, simplex != 0};

    for (i64 row = blockIdx.x; row < count; row += gridDim.x) {
        double* const own = w + row * w_pitch;
        self.right = b + row * b_pitch;
        double largest = simplex ? least : 0;
        for (int c = lane; c < k; c += 32) {
            self.state[c] = !(own[c] > 0) ? LOW : own[c] >= upper ? TOP : FREE;
            if (sizes[c] > 0) largest = fmax(largest, fabs(self.right[c]) / sizes[c]);
        }
#pragma unroll
        for (int far = 16; far; far /= 2) largest = fmax(largest, __shfl_xor_sync(WARP, largest, far));
        const double tolerance = 1e-12 * largest;
        __syncwarp();
        if (self.exchange(tolerance, whole + 2 * k, retries_at_most, exchanges))
            for (int c = lane; c < k; c += 32) own[c] = self.x[c];
        else
            self.step(own, tolerance, steps);
        __syncwarp();
    }
}
