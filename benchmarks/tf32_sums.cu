// Sums of products by tensor cores, as ``choose`` makes them, for gpu.py: out (rows_x, rows_y) of rows of d numbers,
// d a multiple of 8, that are rounded to 11 bits. A warp takes 16 rows of x and 8 of y; there are that many.

extern "C" __global__ void __launch_bounds__(32, 16)
tf32_sums(const float* x, const float* y, int d, i64 rows_y, float* out) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    const i64 row = i64(blockIdx.x) * 16 + g, other = i64(blockIdx.y) * 8;
    float sum[4] = {};
    for (int k = 0; k < d; k += 8) {
        u32 a[4], b[2];
        for (int i = 0; i < 4; i++) a[i] = __float_as_uint(x[(row + i % 2 * 8) * d + k + t + i / 2 * 4]);
        for (int i = 0; i < 2; i++) b[i] = __float_as_uint(y[(other + g) * d + k + t + i * 4]);
        multiply_tf32(sum, a, b);
    }
    for (int i = 0; i < 4; i++) out[(row + i / 2 * 8) * rows_y + other + 2 * t + i % 2] = sum[i];
}
