// Two blocks of rows meet: see meeting.py.
//
// ``choose`` makes products by tensor cores, in tiles that never leave registers. A pair whose bound is below the
// limit of its row, or of its column, is noted beside that row or column. What is noted comes in no fixed order,
// and beyond the room there is only counted. ``refine`` measures what was noted, ``exhaust`` every pair of a row
// that had no room for all; both take pairs into lists by (key, id), so that lists are those of the contract to
// the last bit, in whatever order pairs came and however products were rounded.
//
// Lists are sorted, the farthest first, which is a heap too.

// Products and bounds ----------------------------------------------------------------------------------------
//
// A block of 128 threads takes TILE rows of x and, one after the other, tiles of TILE rows of y. These come in
// pieces of PIECE columns through a ring of STAGES; rows of x stay in shared memory as a whole where there is
// room (RESIDENT), and else come along with y. A warp makes 64 x 64 products. Rows in shared memory lie PAD
// numbers apart from a multiple of 32, so that what 32 lanes load for a product lies in 32 banks.

constexpr int TILE = 128, PIECE = 16, STAGES = 4, PAD = 4, CHOOSERS = 128, PITCH = PIECE + PAD;

__device__ __forceinline__ void fetch(float* to, int pitch, const float* from, i64 row, i64 rows, int ld, int first,
                                      int columns) {
    const int across = columns / 4;
    for (int i = threadIdx.x; i < TILE * across; i += CHOOSERS) {
        const int r = i / across, c = i % across * 4;
        const bool there = row + r < rows;
        copy16(to + r * pitch + c, from + (there ? row + r : 0) * ld + first + c, there);
    }
}

__device__ __forceinline__ void note(int* counts, int* places, int room, i64 row, i64 place) {
    const int slot = atomicAdd(counts + row, 1);
    if (slot < room) places[row * room + slot] = int(place);
}

// x (rows_x, ld) and y (rows_y, ld) as they are multiplied, ld a multiple of PIECE; near: what a row brings to a
// bound; limit: what the bound must be below. Of y, nothing is noted beside rows where ``both`` is false.
template <bool RESIDENT>
__global__ void __launch_bounds__(CHOOSERS, RESIDENT ? 2 : 1)
choose(const float* __restrict__ x, const float* __restrict__ y, i64 rows_x, i64 rows_y, int ld,
       const float* __restrict__ near_x, const float* __restrict__ near_y, const float* __restrict__ limit_x,
       const float* __restrict__ limit_y, int both, i64 first_y, int room, int* counts_x, int* places_x,
       int* counts_y, int* places_y) {
    SHARED_MEMORY(float, memory);
    constexpr int STAGE = TILE * PITCH * (RESIDENT ? 1 : 2);
    const int pieces = ld / PIECE, x_pitch = RESIDENT ? ld + PAD : PITCH;
    float* const ring = RESIDENT ? memory + TILE * x_pitch : memory;
    const i64 top = i64(blockIdx.x) * TILE;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int down = warp / 2 * 64, across = warp % 2 * 64;
    const int tiles = int((rows_y + TILE - 1) / TILE);
    const int own = int(blockIdx.y) < tiles ? (tiles - 1 - int(blockIdx.y)) / int(gridDim.y) + 1 : 0;
    const int steps = own * pieces;

    if (RESIDENT) fetch(memory, x_pitch, x, top, rows_x, ld, 0, ld);
    auto ask = [&](int step) {
        if (step < steps) {
            float* const stage = ring + step % STAGES * STAGE;
            const i64 left = i64(blockIdx.y + step / pieces * gridDim.y) * TILE;
            fetch(stage, PITCH, y, left, rows_y, ld, step % pieces * PIECE, PIECE);
            if (!RESIDENT) fetch(stage + TILE * PITCH, PITCH, x, top, rows_x, ld, step % pieces * PIECE, PIECE);
        }
        close_copies();
    };
#pragma unroll
    for (int step = 0; step < STAGES - 1; step++) ask(step);

    float sum[4][8][4];
    for (int step = 0; step < steps; step++) {
        const int piece = step % pieces;
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // all have what this step takes, and none still reads what is asked for now
        ask(step + STAGES - 1);
        if (piece == 0) {
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 8; j++)
#pragma unroll
                    for (int c = 0; c < 4; c++) sum[i][j][c] = 0;
        }
        const float* const columns = ring + step % STAGES * STAGE + (across + g) * PITCH + t;
        const float* const rows = RESIDENT ? memory + (down + g) * x_pitch + piece * PIECE + t
                                           : ring + step % STAGES * STAGE + (TILE + down + g) * PITCH + t;
#pragma unroll
        for (int k = 0; k < PIECE; k += 8) {
            u32 b[8][2];
#pragma unroll
            for (int j = 0; j < 8; j++)
#pragma unroll
                for (int h = 0; h < 2; h++) b[j][h] = __float_as_uint(columns[8 * j * PITCH + k + 4 * h]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 a[4];
#pragma unroll
                for (int h = 0; h < 4; h++)
                    a[h] = __float_as_uint(rows[(16 * i + h % 2 * 8) * x_pitch + k + h / 2 * 4]);
#pragma unroll
                for (int j = 0; j < 8; j++) multiply_tf32(sum[i][j], a, b[j]);
            }
        }
        if (piece + 1 < pieces) continue;

        const i64 left = i64(blockIdx.y + step / pieces * gridDim.y) * TILE + across;
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const i64 row = top + down + 16 * i + 8 * h + g;
                if (row >= rows_x) continue;
                const float brings = near_x[row], limit = limit_x[row];
#pragma unroll
                for (int j = 0; j < 8; j++)
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        const i64 column = left + 8 * j + 2 * t + c;
                        if (column >= rows_y) continue;
                        const float bound = brings + near_y[column] - sum[i][j][2 * h + c];
                        if (bound < limit) note(counts_x, places_x, room, row, first_y + column);
                        if (both && bound < limit_y[column]) note(counts_y, places_y, room, column, row);
                    }
            }
        }
    }
}

// The same from products in float64, (rows_x, rows_y), a block of threads for each row; places of rows of x count
// from ``first_x``.
__global__ void __launch_bounds__(128, 8)
scan(const double* __restrict__ products, i64 rows_y, const double* __restrict__ near_x,
     const double* __restrict__ near_y, const double* __restrict__ limit_x, const double* __restrict__ limit_y, int both,
     i64 first_x, i64 first_y, int room, int* counts_x, int* places_x, int* counts_y, int* places_y) {
    const i64 row = blockIdx.x;
    const double brings = near_x[row], limit = limit_x[row];
    for (i64 column = threadIdx.x; column < rows_y; column += CHOOSERS) {
        const double bound = brings + near_y[column] - products[row * rows_y + column];
        if (bound < limit) note(counts_x, places_x, room, row, first_y + column);
        if (both && bound < limit_y[column]) note(counts_y, places_y, room, column, first_x + row);
    }
}

// What is multiplied: rows less a shift, times a scale, rounded to the bits that tensor cores look at, to nearest.
template <typename T>
__global__ void __launch_bounds__(128, 8)
round_rows(const T* __restrict__ x, i64 x_pitch, i64 rows, int d, const double* __restrict__ shift,
           const double* __restrict__ scale, float* __restrict__ out, int ld) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= ld) return;
    for (i64 row = blockIdx.y; row < rows; row += gridDim.y) {
        double number = 0;
        if (column < d) number = (double(x[row * x_pitch + column]) - (shift ? shift[column] : 0.0)) * scale[row];
        out[row * ld + column] = __uint_as_float((__float_as_uint(float(number)) + 0x1000u) & 0xffffe000u);
    }
}

// Distances --------------------------------------------------------------------------------------------------

// A warp lets a pair into a list if it is nearer than the farthest there, and not in it.
__device__ __forceinline__ void take(double* keys, i64* ids, int k, double key, i64 id, int lane) {
    if (!nearer(key, id, keys[0], ids[0])) return;
    int farther = 0;
    bool known = false;
    for (int start = 0; start < k; start += 32) {
        const int slot = start + lane;
        const bool there = slot < k;
        known |= __any_sync(WARP, there && ids[slot] == id);
        farther += __popc(__ballot_sync(WARP, there && nearer(key, id, keys[slot], ids[slot])));
    }
    if (known) return;
    for (int start = 0; start + 1 < farther; start += 32) {
        const int slot = start + lane;
        const bool moves = slot + 1 < farther;
        const double next = moves ? keys[slot + 1] : 0.0;
        const i64 next_id = moves ? ids[slot + 1] : 0;
        __syncwarp();
        if (moves) keys[slot] = next, ids[slot] = next_id;
        __syncwarp();
    }
    if (lane == 0) keys[farther - 1] = key, ids[farther - 1] = id;
    __syncwarp();
}

// Both pairs of a warp, of which its halves have measured one each.
__device__ __forceinline__ void take_both(double* keys, i64* ids, int k, double key, i64 id, bool wanted, int lane) {
#pragma unroll 1
    for (int h = 0; h < 2; h++) {
        const double one = __shfl_sync(WARP, key, 16 * h);
        const i64 name = __shfl_sync(WARP, id, 16 * h);
        if (__shfl_sync(WARP, int(wanted), 16 * h)) take(keys, ids, k, one, name, lane);
    }
}

// A warp a row. ``own``: id of the first row of x where both blocks are one, else below any id.
template <typename T>
__global__ void __launch_bounds__(128, 6)
refine(const T* __restrict__ x, i64 x_pitch, const T* __restrict__ y, i64 y_pitch, i64 rows, int d,
       const double* __restrict__ scale_x, const double* __restrict__ scale_y, int metric, i64 first, i64 own, int room,
       const int* __restrict__ counts, const int* __restrict__ places, int k, double* keys, i64* ids) {
    const int lane = threadIdx.x % 32;
    const i64 row = i64(blockIdx.x) * 4 + threadIdx.x / 32;
    if (row >= rows || counts[row] > room) return;  // where there was no room, ``exhaust`` takes the row
    const int noted = counts[row];
    for (int start = 0; start < noted; start += 2) {
        const bool there = start + lane / 16 < noted;
        const i64 place = places[row * room + start + (there ? lane / 16 : 0)];
        const double key = measure(x + row * x_pitch, y + place * y_pitch, d, scale_x[row], scale_y[place], metric, lane);
        take_both(keys + row * k, ids + row * k, k, key, first + place, there && first + place != own + row, lane);
    }
}

// Every pair of a row with rows ``start`` to ``end`` of y, where more was noted than there was room for, or of all
// rows without ``counts``. A list full of zeros takes no larger id, so that many equal rows are not measured.
template <typename T>
__global__ void __launch_bounds__(128, 6)
exhaust(const T* __restrict__ x, i64 x_pitch, const T* __restrict__ y, i64 y_pitch, i64 rows, i64 start, i64 end, int d,
        const double* __restrict__ scale_x, const double* __restrict__ scale_y, int metric, i64 first, i64 own, int room,
        const int* __restrict__ counts, int k, double* keys, i64* ids) {
    const int lane = threadIdx.x % 32;
    const i64 row = i64(blockIdx.x) * 4 + threadIdx.x / 32;
    if (row >= rows || (counts && counts[row] <= room)) return;
    double* const own_keys = keys + row * k;
    i64* const own_ids = ids + row * k;
    for (i64 pair = start; pair < end; pair += 2) {
        if (metric != INNER_PRODUCT && own_keys[0] == 0 && first + pair > own_ids[0]) break;
        const bool there = pair + lane / 16 < end;
        const i64 place = there ? pair + lane / 16 : pair;
        const double key = measure(x + row * x_pitch, y + place * y_pitch, d, scale_x[row], scale_y[place], metric, lane);
        take_both(own_keys, own_ids, k, key, first + place, there && first + place != own + row, lane);
    }
}
