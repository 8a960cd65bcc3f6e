// Data over model, and the divergence between the two: see kl_divergence.py.
//
// A block takes a row: its threads take every THREADS-th element, and are added up in one order.

template <typename T, int THREADS>
__global__ void __launch_bounds__(THREADS, 2)
quotients(const T* __restrict__ x, i64 x_pitch, T* __restrict__ product, i64 pitch, i64 columns, double smallest,
          double largest, double* __restrict__ sums) {
    __shared__ double parts[THREADS / 32];
    constexpr double TINY = 2.2250738585072014e-308, HUGE_NUMBER = 1.7976931348623157e308;
    const i64 row = blockIdx.x;
    double total = 0;
    for (i64 c = threadIdx.x; c < columns; c += THREADS) {
        const double data = widen(x[row * x_pitch + c]);
        const double model = fmax(widen(product[row * pitch + c]), smallest);
        const double quotient = data / model;
        double logarithm;
        if (quotient > HUGE_NUMBER) logarithm = log(fmax(data, TINY)) - log(model);
        else logarithm = log(fmax(quotient, TINY));
        total += data * logarithm + (model - data);
        narrow(fmin(quotient, largest), product + row * pitch + c);
    }
#pragma unroll
    for (int far = 16; far; far /= 2) total += __shfl_xor_sync(WARP, total, far);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0;
#pragma unroll
        for (int i = 0; i < THREADS / 32; i++) sum += parts[i];
        sums[row] = sum;
    }
}
