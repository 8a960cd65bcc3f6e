// CUDA C++ on one thread of a CPU: the text of a .cu file, compiled as C++17 behind this header.
//
// Threads of a block are fibers. One runs until it comes to a barrier, or to an exchange among the lanes of its
// warp, and goes on when all have come that take part. Who runs first is the caller's choice: all threads side by
// side; one warp as far as it comes, the last one first; or as dice fall. Asynchronous copies are made when they
// are waited for, at once, or either. Where results depend on the choice, a barrier or a wait is missing.
//
// Refused: barriers that not all threads reach or that differ, exchanges of other lanes than the mask says,
// arguments of another size than the kernel takes, blocks and shared memory beyond those of a chip, and copies of
// 16 bytes that do not begin at a multiple of 16. Shared memory starts as NaN. Out of bounds is for
// -fsanitize=address. Not imitated: time, caches, and blocks that run at once.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

#define ON_CPU
#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __shared__ static
#define __align__ alignas

typedef int64_t i64;
typedef uint32_t u32;
struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

// A switch of stacks: what the callee must keep is pushed here and popped there.
extern "C" void switch_stacks(void** from, void* to);
asm(".text\n.weak switch_stacks\nswitch_stacks:\n"
    "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n");
#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_start_switch_fiber(void** kept, const void* bottom, size_t size);
extern "C" void __sanitizer_finish_switch_fiber(void* kept, const void** bottom, size_t* size);
#else
static inline void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
static inline void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
#endif

namespace on_cpu {

constexpr size_t STACK_BYTES = 256 << 10, SHARED_BYTES = 227 << 10, SMALL_SHARED_BYTES = 48 << 10;
enum Order { TOGETHER, AHEAD, DICE };

struct Launch {
    unsigned grid[3], block[3];
    uint64_t shared, shared_allowed;
    int order;
    unsigned seed;
};

struct Copy {
    void* to;
    const void* from;
    size_t bytes, valid;
    void make() const {
        if (valid) std::memcpy(to, from, valid);
        std::memset(static_cast<char*>(to) + valid, 0, bytes - valid);
    }
};

struct Thread {
    dim3 index;
    unsigned number = 0;
    char* stack = nullptr;
    void* top = nullptr;
    void* kept = nullptr;
    int barrier = 0;  // its line, while waiting there
    bool ended = false;
    std::deque<std::vector<Copy>> copies{1};
};

// Among the lanes of one mask. Of two rounds the data are there: a lane that is ahead cannot be two rounds ahead.
struct Exchange {
    uint64_t round = 0;
    u32 arrived = 0;
    int line = 0;
    alignas(16) unsigned char data[2][32][64];
};

struct Block {
    const Launch* launch;
    dim3 index;
    std::vector<Thread> threads;
    std::vector<std::map<u32, Exchange>> warps;
    unsigned char* shared = nullptr;
    void* home = nullptr;
    Thread* running = nullptr;
    void (*kernel)(void*) = nullptr;
    void* arguments = nullptr;
    std::string error;
    uint64_t progress = 0;
    std::mt19937 dice;
};
inline thread_local Block* block;

[[noreturn]] inline void refuse(const std::string& why) { throw std::runtime_error(why); }
inline std::string at_line(int line) { return " in line " + std::to_string(line); }

inline void pause() {
    Thread& self = *block->running;
    __sanitizer_start_switch_fiber(self.ended ? nullptr : &self.kept, nullptr, 0);
    switch_stacks(&self.top, block->home);
    __sanitizer_finish_switch_fiber(self.kept, nullptr, nullptr);
}

inline void life() {
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
    try {
        block->kernel(block->arguments);
    } catch (const std::exception& error) {
        block->error = error.what();
    }
    block->running->ended = true;
    block->progress++;
    pause();
}

inline void go_on(Thread& thread) {
    void* kept = nullptr;
    block->running = &thread;
    __sanitizer_start_switch_fiber(&kept, thread.stack, STACK_BYTES);
    switch_stacks(&block->home, thread.top);
    __sanitizer_finish_switch_fiber(kept, nullptr, nullptr);
    if (!block->error.empty()) refuse(block->error);
}

inline void barrier(int line) {
    block->running->barrier = line;
    block->progress++;
    pause();
}

inline u32 lane() { return block->running->number % 32; }

// What the lanes of a mask have brought, 64 bytes for each.
inline const unsigned char (*exchange(u32 mask, const void* mine, size_t bytes, int line))[64] {
    const u32 me = lane();
    if (!(mask >> me & 1)) refuse("a lane is not in its own mask" + at_line(line));
    Exchange& these = block->warps[block->running->number / 32][mask];
    if (these.arrived && these.line != line)
        refuse("lanes of a warp meet" + at_line(these.line) + " and" + at_line(line));
    const uint64_t round = these.round;
    these.line = line;
    std::memcpy(these.data[round % 2][me], mine, bytes);
    these.arrived |= 1u << me;
    block->progress++;
    if (these.arrived == mask) these.arrived = 0, these.round++;
    while (these.round == round) pause();
    return these.data[round % 2];
}

template <typename T> T from_lane(u32 mask, T value, u32 source, int line) {
    static_assert(sizeof(T) <= 64, "");
    const auto data = exchange(mask, &value, sizeof value, line);
    if (!(mask >> source % 32 & 1)) refuse("a lane is asked for that does not take part" + at_line(line));
    std::memcpy(&value, data[source % 32], sizeof value);
    return value;
}

inline u32 votes(u32 mask, bool vote, int line) {
    const auto data = exchange(mask, &vote, 1, line);
    u32 all = 0;
    for (u32 i = 0; i < 32; i++)
        if (mask >> i & 1 && data[i][0]) all |= 1u << i;
    return all;
}

// Copies that need not have been made before they are waited for.
inline void copy_later(void* to, const void* from, size_t bytes, size_t valid) {
    const Copy copy = {to, from, bytes, valid};
    const int order = block->launch->order;
    if (order == AHEAD || (order == DICE && block->dice() & 1)) copy.make();
    else block->running->copies.back().push_back(copy);
}
inline void close_group() { block->running->copies.emplace_back(); }
inline void wait_for_groups(size_t but) {
    auto& groups = block->running->copies;
    for (; groups.size() > but + 1; groups.pop_front())
        for (const Copy& copy : groups.front()) copy.make();
}

// Every thread of a list goes on to its next stop; whether any came further.
inline bool advance(const std::vector<unsigned>& list) {
    const uint64_t before = block->progress;
    for (unsigned i : list) {
        Thread& thread = block->threads[i];
        if (!thread.ended && !thread.barrier) go_on(thread);
    }
    return block->progress != before;
}

inline bool turn(std::vector<std::vector<unsigned>>& warps) {
    bool any = false;
    const int order = block->launch->order;
    if (order == TOGETHER) {
        for (auto& warp : warps) any |= advance(warp);
        return any;
    }
    if (order == DICE) std::shuffle(warps.begin(), warps.end(), block->dice);
    for (auto& warp : warps)
        for (;;) {
            if (order == DICE) std::shuffle(warp.begin(), warp.end(), block->dice);
            if (!advance(warp)) break;
            any = true;
            if (order == DICE && block->dice() % 8 == 0) break;
        }
    return any;
}

inline void run_block() {
    const size_t count = block->threads.size();
    std::vector<std::vector<unsigned>> warps((count + 31) / 32);
    for (unsigned i = 0; i < count; i++) warps[i / 32].push_back(i);
    if (block->launch->order == AHEAD) {
        std::reverse(warps.begin(), warps.end());
        for (auto& warp : warps) std::reverse(warp.begin(), warp.end());
    }
    for (auto& warp : block->warps) warp.clear();
    for (Thread& thread : block->threads) {
        thread.ended = false;
        thread.barrier = 0;
        thread.copies.assign(1, {});
        void** top = reinterpret_cast<void**>(thread.stack + STACK_BYTES - 64);
        *--top = nullptr;  // where ``life`` would return to: stacks are 16 bytes and a return address apart
        *--top = reinterpret_cast<void*>(&life);
        for (int saved = 0; saved < 6; saved++) *--top = nullptr;
        thread.top = top;
    }
    for (;;) {
        const bool any = turn(warps);
        size_t ended = 0, waiting = 0;
        int line = 0;
        for (const Thread& thread : block->threads) {
            ended += thread.ended;
            waiting += thread.barrier != 0;
            if (!thread.barrier) continue;
            if (line && line != thread.barrier)
                refuse("threads wait at barriers" + at_line(line) + " and" + at_line(thread.barrier));
            line = thread.barrier;
        }
        if (ended == count) return;
        if (waiting == count) {
            for (Thread& thread : block->threads) thread.barrier = 0;
        } else if (waiting + ended == count) {
            refuse("threads have ended that a barrier waits for" + at_line(line));
        } else if (!any) {
            refuse("nobody can go on: lanes are waited for that do not come");
        }
    }
}

inline void run(const Launch& launch, void (*kernel)(void*), void* arguments) {
    const unsigned *grid = launch.grid, *size = launch.block;
    const uint64_t count = uint64_t(size[0]) * size[1] * size[2];
    if (!count || count > 1024) refuse("a block of " + std::to_string(count) + " threads");
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 2147483647u || grid[1] > 65535 || grid[2] > 65535)
        refuse("a grid that cannot be launched");
    if (launch.shared > SHARED_BYTES) refuse(std::to_string(launch.shared) + " bytes of shared memory");
    if (launch.shared > SMALL_SHARED_BYTES && launch.shared > launch.shared_allowed)
        refuse("more than 48 KiB of shared memory without leave");
    Block own;
    own.launch = &launch;
    own.kernel = kernel;
    own.arguments = arguments;
    own.threads.resize(count);
    own.warps.resize((count + 31) / 32);
    own.dice.seed(launch.seed);
    const size_t stack_bytes = STACK_BYTES * count;
    void* stacks = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) refuse("no memory for stacks");
    for (unsigned i = 0; i < count; i++) {
        Thread& thread = own.threads[i];
        thread.number = i;
        thread.index = {i % size[0], i / size[0] % size[1], i / size[0] / size[1]};
        thread.stack = static_cast<char*>(stacks) + STACK_BYTES * i;
    }
    const uint64_t blocks = uint64_t(grid[0]) * grid[1] * grid[2];
    std::vector<uint64_t> order(blocks);
    for (uint64_t i = 0; i < blocks; i++) order[i] = launch.order == AHEAD ? blocks - 1 - i : i;
    if (launch.order == DICE) std::shuffle(order.begin(), order.end(), own.dice);
    std::string error;
    block = &own;
    for (uint64_t i : order) {
        own.index = {unsigned(i % grid[0]), unsigned(i / grid[0] % grid[1]), unsigned(i / grid[0] / grid[1])};
        // All of it is there and no more, so that a sanitizer sees what lies beyond; no number before it is written.
        own.shared = static_cast<unsigned char*>(::operator new(launch.shared, std::align_val_t(128)));
        std::memset(own.shared, 0xff, launch.shared);
        try {
            run_block();
        } catch (const std::exception& refused) {
            error = refused.what();
        }
        ::operator delete(own.shared, std::align_val_t(128));
        if (!error.empty()) break;
    }
    block = nullptr;
    munmap(stacks, stack_bytes);
    if (!error.empty()) refuse(error);
}

// How a kernel is called with pointers to its arguments, as the driver is.
template <typename... A> struct Call {
    void (*kernel)(A...);
    template <size_t... I> void with(void** arguments, std::index_sequence<I...>) const {
        kernel(*static_cast<std::remove_const_t<std::remove_reference_t<A>>*>(arguments[I])...);
    }
    void operator()(void** arguments) const { with(arguments, std::index_sequence_for<A...>()); }
    void check(const unsigned* sizes, unsigned count) const {
        const std::vector<size_t> wanted = {sizeof(A)...};
        if (count != wanted.size())
            refuse(std::to_string(count) + " arguments, the kernel takes " + std::to_string(wanted.size()));
        for (size_t i = 0; i < wanted.size(); i++)
            if (sizes[i] != wanted[i])
                refuse("argument " + std::to_string(i) + " has " + std::to_string(sizes[i]) +
                       " bytes, the kernel takes " + std::to_string(wanted[i]));
    }
};
template <typename... A> Call<A...> call_of(void (*kernel)(A...)) { return {kernel}; }

}  // namespace on_cpu

#define KERNEL_ON_CPU(symbol, ...)                                                                         \
    extern "C" int symbol(const on_cpu::Launch* launch, void** arguments, const unsigned* sizes,            \
                          unsigned count, char* why, uint64_t room) {                                      \
        try {                                                                                              \
            on_cpu::call_of(__VA_ARGS__).check(sizes, count);                                              \
            on_cpu::run(*launch, [](void* a) { on_cpu::call_of(__VA_ARGS__)(static_cast<void**>(a)); },     \
                        arguments);                                                                        \
        } catch (const std::exception& error) {                                                            \
            std::snprintf(why, room, "%s", error.what());                                                  \
            return 1;                                                                                      \
        }                                                                                                  \
        return 0;                                                                                          \
    }

#define threadIdx (on_cpu::block->running->index)
#define blockIdx (on_cpu::block->index)
#define blockDim (dim3{on_cpu::block->launch->block[0], on_cpu::block->launch->block[1], on_cpu::block->launch->block[2]})
#define gridDim (dim3{on_cpu::block->launch->grid[0], on_cpu::block->launch->grid[1], on_cpu::block->launch->grid[2]})
#define SHARED_MEMORY(type, name) type* name = reinterpret_cast<type*>(on_cpu::block->shared)

#define __syncthreads() on_cpu::barrier(__LINE__)
#define __syncwarp() (void)on_cpu::exchange(0xffffffffu, "", 1, __LINE__)
#define __shfl_sync(mask, value, source) on_cpu::from_lane(mask, value, u32(source), __LINE__)
#define __shfl_xor_sync(mask, value, bits) on_cpu::from_lane(mask, value, on_cpu::lane() ^ u32(bits), __LINE__)
#define __ballot_sync(mask, vote) on_cpu::votes(mask, vote, __LINE__)
#define __any_sync(mask, vote) (on_cpu::votes(mask, vote, __LINE__) != 0)

static inline void copy16(void* to, const void* from, bool there) {
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16)
        on_cpu::refuse("a copy of 16 bytes does not begin at a multiple of 16");
    on_cpu::copy_later(to, from, 16, there ? 16 : 0);
}
static inline void close_copies() { on_cpu::close_group(); }
template <int PENDING> static inline void wait_for_copies() { on_cpu::wait_for_groups(PENDING); }

static inline float __uint_as_float(u32 a) {
    float number;
    std::memcpy(&number, &a, 4);
    return number;
}
struct Fragments {
    u32 a[4], b[2];
    float at(int row, int k) const { return __uint_as_float(a[row + 2 * k] & 0xffffe000u); }
    float of(int k) const { return __uint_as_float(b[k] & 0xffffe000u); }
};
static inline void multiply_on_cpu(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2], int line) {
    const Fragments mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const auto data = on_cpu::exchange(0xffffffffu, &mine, sizeof mine, line);
    Fragments all[32];
    for (int i = 0; i < 32; i++) std::memcpy(&all[i], data[i], sizeof mine);
    const int g = on_cpu::lane() / 4, t = on_cpu::lane() % 4;
    for (int c = 0; c < 4; c++)
        for (int k = 0; k < 8; k++)
            sum[c] += all[4 * g + k % 4].at(c / 2, k / 4) * all[4 * (2 * t + c % 2) + k % 4].of(k / 4);
}
#define multiply_tf32(sum, a, b) multiply_on_cpu(sum, a, b, __LINE__)

using std::max;
using std::min;
static inline int atomicAdd(int* at, int by) {
    const int before = *at;
    *at += by;
    return before;
}
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline double __dsqrt_rn(double a) { return std::sqrt(a); }
static inline u32 __float_as_uint(float a) {
    u32 bits;
    std::memcpy(&bits, &a, 4);
    return bits;
}
static inline int __popc(u32 a) { return __builtin_popcount(a); }
static inline int __ffs(u32 a) { return __builtin_ffs(int(a)); }
static inline int __clz(u32 a) { return a ? __builtin_clz(a) : 32; }
