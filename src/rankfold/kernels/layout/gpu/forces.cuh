// Forces by tables, and random vertices: see forces.py, whose constants these are.
//
// Products and sums are rounded one after the other (__fmul_rn, __fadd_rn), never in one step: positions are those
// of the host, to the last bit. Squared distances below 2^-126 alone are 0 here.

typedef unsigned long long u64;

constexpr int FIRST = (127 - 32) << 23, LAST = (64 << 23) - 1, SHIFT = 17;
constexpr float FARTHEST = 4;
constexpr u64 STEP = 0x9E3779B97F4A7C15ull;

// A vector of a thread: in registers where its length is known, else in a row of device memory.
template <int D> struct Vector {
    float own[D];
    __device__ __forceinline__ explicit Vector(float*) {}
    __device__ __forceinline__ float& operator[](int d) { return own[d]; }
};
template <> struct Vector<0> {
    float* row;
    __device__ __forceinline__ explicit Vector(float* memory) : row(memory) {}
    __device__ __forceinline__ float& operator[](int d) { return row[d]; }
};

struct Positions {
    const float* at;
    i64 count;
    int width;
    __device__ __forceinline__ const float* of(i64 vertex) const { return at + vertex * width; }
};

__device__ __forceinline__ u64 mix(u64 word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
    return word ^ (word >> 31);
}

__device__ __forceinline__ bool pulls(u32 epoch, u32 phase) { return epoch * phase < phase; }

__device__ __forceinline__ float limited(float force) { return fminf(fmaxf(force, -FARTHEST), FARTHEST); }

// Of a table at a squared distance; 0 where there is none.
__device__ __forceinline__ float value_of(const float* table, float square) {
    if (!(square > 0)) return 0;
    int place = int(__float_as_uint(square)) - FIRST;
    place = place < 0 ? 0 : place > LAST ? LAST : place;
    const int step = place >> SHIFT;
    const float value = table[step], share = float(place & ((1 << SHIFT) - 1)) * (1.0f / (1 << SHIFT));
    return __fadd_rn(value, __fmul_rn(share, __fsub_rn(table[step + 1], value)));
}

template <typename X>
__device__ __forceinline__ float square_of(X& x, const float* other, int width) {
    float square = 0;
    for (int d = 0; d < width; d++) {
        const float difference = __fsub_rn(x[d], other[d]);
        square = __fadd_rn(square, __fmul_rn(difference, difference));
    }
    return square;
}

// x moves away from random vertices, by the sum of their forces where it is; words are counted from ``counter`` on.
template <typename X>
__device__ __forceinline__ void repel(X& x, X& push, const Positions& all, const float* repulsion, u64 counter,
                                      int negatives, float rate, int width) {
    for (int d = 0; d < width; d++) push[d] = 0;
    u64 word = 0;
    for (int sample = 0; sample < negatives; sample++) {
        if (sample % 2 == 0) word = mix(counter + STEP * u64(sample / 2));
        const u64 half = sample % 2 ? word & 0xFFFFFFFFull : word >> 32;
        const float* const far = all.of(i64((half * u64(all.count)) >> 32));
        const float factor = value_of(repulsion, square_of(x, far, width));
        for (int d = 0; d < width; d++)
            push[d] = __fadd_rn(push[d], limited(__fmul_rn(factor, __fsub_rn(x[d], far[d]))));
    }
    for (int d = 0; d < width; d++) x[d] = __fadd_rn(x[d], __fmul_rn(rate, push[d]));
}
