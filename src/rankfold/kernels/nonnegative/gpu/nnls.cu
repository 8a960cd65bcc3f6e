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
// A warp takes a row: exchanges until no coordinate is infeasible, each with a Cholesky factor of the passive part.
// A row that is not solved within ``exchanges`` is left to 200 sweeps of coordinate descent.

// The passive part of G = L L', by rows of L, which takes p (p + 1) / 2 numbers.
__device__ __forceinline__ void factor_passive(const double* gram, double ridge, int k, const int* at, int p, double* l,
                                               int lane) {
    for (int j = 0; j < p; j++) {
        double* const row_j = l + j * (j + 1) / 2;
        double pivot = 0;
        for (int i = j + lane; i < p; i += 32) {
            double* const row_i = l + i * (i + 1) / 2;
            double rest = gram[at[i] * k + at[j]] + (i == j ? ridge : 0);
            for (int c = 0; c < j; c++) rest -= row_i[c] * row_j[c];
            if (i == j) pivot = rest;
            row_i[j] = rest;
        }
        pivot = __shfl_sync(WARP, pivot, 0);
        const double root = sqrt(pivot > ridge ? pivot : ridge);
        for (int i = j + lane; i < p; i += 32) l[i * (i + 1) / 2 + j] = i == j ? root : l[i * (i + 1) / 2 + j] / root;
        __syncwarp();
    }
}

// L L' x = x, in place.
__device__ __forceinline__ void solve_passive(const double* l, int p, double* x, int lane) {
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

__global__ void __launch_bounds__(32, 1)
solve_rows(const double* __restrict__ gram, const double* __restrict__ ridge_of, const double* __restrict__ b,
           i64 b_pitch, double* __restrict__ w, i64 w_pitch, i64 count, int k, int retries_at_most, int exchanges,
           double* scratch) {
    SHARED_MEMORY(double, room);
    double* const x = room;                 // solution on the passive part, then as it is written
    double* const packed = x + k;
    int* const at = reinterpret_cast<int*>(packed + k);      // passive coordinates
    int* const passive = at + k;
    int* const wrong = passive + k;
    const i64 factor_size = i64(k) * (k + 1) / 2;
    double* const l = scratch ? scratch + blockIdx.x * factor_size
                              : reinterpret_cast<double*>(wrong + k + (k & 1));
    const int lane = threadIdx.x;
    const double ridge = ridge_of[0];

    for (i64 row = blockIdx.x; row < count; row += gridDim.x) {
        const double* const right = b + row * b_pitch;
        double* const own = w + row * w_pitch;
        double largest = 0;
        for (int c = lane; c < k; c += 32) {
            passive[c] = own[c] > 0;
            largest = fmax(largest, fabs(right[c]));
        }
#pragma unroll
        for (int far = 16; far; far /= 2) largest = fmax(largest, __shfl_xor_sync(WARP, largest, far));
        const double tolerance = 1e-12 * largest;
        int retries = retries_at_most, fewest = k + 1;
        bool solved = false;
        __syncwarp();
        for (int exchange = 0; exchange < exchanges && !solved; exchange++) {
            int p = 0;
            for (int start = 0; start < k; start += 32) {
                const int c = start + lane;
                const bool here = c < k && passive[c];
                const u32 those = __ballot_sync(WARP, here);
                if (here) at[p + __popc(those & ((1u << lane) - 1))] = c;
                p += __popc(those);
            }
            __syncwarp();
            for (int i = lane; i < p; i += 32) packed[i] = right[at[i]];
            factor_passive(gram, ridge, k, at, p, l, lane);
            solve_passive(l, p, packed, lane);
            for (int c = lane; c < k; c += 32) x[c] = 0;
            __syncwarp();
            for (int i = lane; i < p; i += 32) x[at[i]] = packed[i];
            __syncwarp();
            int infeasible = 0, last = -1;
            for (int start = 0; start < k; start += 32) {
                const int c = start + lane;
                bool bad = false;
                if (c < k && passive[c]) bad = x[c] < 0;
                if (c < k && !passive[c]) {
                    double slope = -right[c];
                    for (int i = 0; i < p; i++) slope += gram[c * k + at[i]] * packed[i];
                    bad = slope < -tolerance;
                }
                if (c < k) wrong[c] = bad;
                const u32 those = __ballot_sync(WARP, bad);
                infeasible += __popc(those);
                if (those) last = start + 31 - __clz(those);
            }
            __syncwarp();
            solved = infeasible == 0;
            bool all = true;
            if (infeasible < fewest) fewest = infeasible, retries = retries_at_most;
            else if (retries) retries--;
            else all = false;
            if (!solved)
                for (int c = lane; c < k; c += 32)
                    if (wrong[c] && (all || c == last)) passive[c] = !passive[c];
            __syncwarp();
        }
        if (!solved) {
            for (int c = lane; c < k; c += 32) x[c] = own[c];
            __syncwarp();
            for (int sweep = 0; sweep < 200; sweep++)
                for (int t = 0; t < k; t++) {
                    double slope = 0;
                    for (int c = lane; c < k; c += 32) slope += gram[t * k + c] * x[c];
                    slope = sum_of_warp(slope) + ridge * x[t] - right[t];
                    const double curvature = gram[t * k + t] + ridge, before = x[t];
                    __syncwarp();
                    if (lane == 0 && curvature > 0) x[t] = fmax(before - slope / curvature, 0.0);
                    __syncwarp();
                }
        }
        for (int c = lane; c < k; c += 32) own[c] = x[c];
        __syncwarp();
    }
}
