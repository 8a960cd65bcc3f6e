// What comes before every .cu file: names of types, and a word for shared memory whose size the launch gives.
// Nothing is included, so that NVRTC needs no headers. On a CPU, where tests run kernels without a device, the
// words of CUDA and these are defined beforehand (ON_CPU).

#ifndef ON_CPU
typedef long long i64;
typedef unsigned int u32;
#define SHARED_MEMORY(type, name)                                    \
    extern __shared__ __align__(16) unsigned char launch_memory[];   \
    type* name = reinterpret_cast<type*>(launch_memory)

// Sixteen bytes from device to shared memory, while threads go on; zeros where there is nothing to read. Copies
// of a thread are closed into groups, and waited for until no more than PENDING groups are under way.
__device__ __forceinline__ void copy16(void* to, const void* from, bool there) {
    const u32 address = u32(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(there ? 16 : 0));
}
__device__ __forceinline__ void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// sum += a b by the 32 lanes of a warp, of (16, 8) and (8, 8) numbers whose low 13 bits are not looked at. With
// g = lane / 4 and t = lane % 4, a lane has a in rows g, g + 8, g, g + 8 and columns t, t, t + 4, t + 4, b in rows
// t, t + 4 of column g, and sums in rows g, g, g + 8, g + 8 and columns 2 t, 2 t + 1, 2 t, 2 t + 1.
__device__ __forceinline__ void multiply_tf32(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// CuPy has everything compiled with -ftz=true, which takes subnormal numbers of float32 for zero. A change of type
// in these words keeps them.
__device__ __forceinline__ double widen(float number) {
    double wide;
    asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(number));
    return wide;
}
__device__ __forceinline__ void narrow(double number, float* to) {
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(*to) : "d"(number));
}
#else
inline double widen(float number) { return number; }
inline void narrow(double number, float* to) { *to = float(number); }
#endif

template <typename T> __device__ __forceinline__ double widen(T number) { return double(number); }
__device__ __forceinline__ void narrow(double number, double* to) { *to = number; }

constexpr u32 WARP = 0xffffffffu;

// Sixteen bytes that are loaded and stored at once.
template <typename T> struct alignas(16) Pack {
    static constexpr int N = 16 / sizeof(T);
    T of[N];
};
template <typename T> __device__ __forceinline__ Pack<T> load_pack(const T* at) {
    return *reinterpret_cast<const Pack<T>*>(at);
}
