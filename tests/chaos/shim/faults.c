/* Files, clocks and connections that misbehave as a block of shared memory says: see faults.py.

   Paths count that begin with RANKFOLD_CHAOS_BELOW. What is relative to an open folder is left alone. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    double clock_shift; /* seconds added to what the clock says */
    long delay_us;      /* of every so many-th operation on names of files */
    long every;
    long stale_at; /* number of the open or read that fails with ESTALE, and all reads of that file after it */
    long cut_pid;  /* process whose connections break */
    long hub_pid;  /* process that all others reach, at a port, while they do not reach each other */
    long hub_port;
    long late_us;  /* that a process goes on to miss a name which it has once asked for in vain */
    long unlocked; /* whether everybody gets every lock */
    long calls;    /* operations on names so far */
    long reads;    /* opens and reads so far */
};

static struct control *control;
static const char *below;
static size_t length;

#define FILES 65536
static unsigned char marks[FILES]; /* of files: 1 opened to be read, 2 stale */
static unsigned short ports[FILES]; /* that connections were made to from here */

static int has_place(int file) { return file >= 0 && file < FILES; }

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("RANKFOLD_CHAOS_CONTROL");
    below = getenv("RANKFOLD_CHAOS_BELOW");
    if (!path || !below) return;
    length = strlen(below);
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (file < 0) return;
    void *place = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (place != MAP_FAILED) control = place;
}

static int counts(const char *path) { return control && path && !strncmp(path, below, length); }

static void wait_for(const char *path) {
    if (!counts(path)) return;
    long number = __atomic_add_fetch(&control->calls, 1, __ATOMIC_RELAXED);
    if (control->delay_us && control->every && number % control->every == 0) {
        struct timespec pause = {control->delay_us / 1000000, control->delay_us % 1000000 * 1000};
        nanosleep(&pause, NULL);
    }
}

static int is_stale(void) {
    long number = __atomic_add_fetch(&control->reads, 1, __ATOMIC_RELAXED);
    return control->stale_at && number == control->stale_at;
}

/* Names that were not there, which a client of a file server goes on to miss, and all below them, until what it
   knows is old: a hash each, and when that is. What a process makes itself, it sees. */

#define MISSES 65536
static struct {
    unsigned long hash, until;
} misses[MISSES];

static unsigned long now_us(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (unsigned long)now.tv_sec * 1000000 + (unsigned long)now.tv_nsec / 1000;
}

static unsigned long hash_on(unsigned long hash, char letter) {
    return (hash ^ (unsigned char)letter) * 1099511628211UL;
}

static unsigned long hash_of(const char *path, size_t size) {
    unsigned long hash = 14695981039346656037UL;
    while (size--) hash = hash_on(hash, *path++);
    return hash;
}

static int is_missed(const char *path) {
    if (!counts(path) || !control->late_us) return 0;
    unsigned long hash = 14695981039346656037UL, now = now_us();
    for (const char *at = path; *at; at++) {
        hash = hash_on(hash, *at);
        if ((at[1] == '/' || !at[1]) && misses[hash % MISSES].hash == hash &&
            misses[hash % MISSES].until > now) {
            errno = ENOENT;
            return 1;
        }
    }
    return 0;
}

static void miss(const char *path) {
    if (errno != ENOENT || !counts(path) || !control->late_us || strlen(path) >= 4096) return;
    char name[4096];
    strcpy(name, path);
    for (char *end; (end = strrchr(name, '/')) > name + length; *end = 0) { /* the first that is not there */
        *end = 0;
        int there = !syscall(SYS_faccessat, AT_FDCWD, name, F_OK);
        *end = '/';
        if (there) break;
    }
    unsigned long hash = hash_of(name, strlen(name));
    misses[hash % MISSES].until = now_us() + (unsigned long)control->late_us;
    misses[hash % MISSES].hash = hash;
    errno = ENOENT;
}

static void see(const char *path) {
    if (counts(path)) misses[hash_of(path, strlen(path)) % MISSES].until = 0;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Names of files */

#define OPEN(name, given, ...)                                                     \
    {                                                                              \
        mode_t mode = 0;                                                           \
        if (flags & (O_CREAT | O_TMPFILE)) {                                       \
            va_list more;                                                          \
            va_start(more, flags);                                                 \
            mode = va_arg(more, mode_t);                                           \
            va_end(more);                                                          \
        }                                                                          \
        wait_for(path);                                                            \
        if (!(flags & O_CREAT) && is_missed(path)) return -1;                      \
        int reads = counts(path) && (flags & O_ACCMODE) == O_RDONLY && !(flags & O_DIRECTORY); \
        if (reads && is_stale()) {                                                 \
            errno = ESTALE;                                                        \
            return -1;                                                             \
        }                                                                          \
        int file = NEXT(name)(__VA_ARGS__, flags, mode);                           \
        if (file < 0) miss(path);                                                  \
        if (flags & O_CREAT) see(path);                                            \
        if (has_place(file)) marks[file] = (unsigned char)reads;                   \
        return file;                                                               \
    }

int open(const char *path, int flags, ...) OPEN(open, flags, path)
int open64(const char *path, int flags, ...) OPEN(open64, flags, path)
int openat(int at, const char *path, int flags, ...) OPEN(openat, flags, at, path)
int openat64(int at, const char *path, int flags, ...) OPEN(openat64, flags, at, path)

#define LOOK(result, failure, name, parameters, ...) \
    result name parameters {                         \
        wait_for(path);                              \
        if (is_missed(path)) return failure;         \
        result found = NEXT(name)(__VA_ARGS__);      \
        if (found == failure) miss(path);            \
        return found;                                \
    }

LOOK(int, -1, stat, (const char *path, struct stat *state), path, state)
LOOK(int, -1, lstat, (const char *path, struct stat *state), path, state)
LOOK(int, -1, stat64, (const char *path, struct stat64 *state), path, state)
LOOK(int, -1, lstat64, (const char *path, struct stat64 *state), path, state)
LOOK(int, -1, fstatat, (int at, const char *path, struct stat *state, int flags), at, path, state, flags)
LOOK(int, -1, fstatat64, (int at, const char *path, struct stat64 *state, int flags), at, path, state, flags)
LOOK(DIR *, NULL, opendir, (const char *path), path)

#define MAKE(name, made, parameters, ...)  \
    int name parameters {                  \
        wait_for(path);                    \
        int code = NEXT(name)(__VA_ARGS__); \
        if (!code || errno == EEXIST) see(made); \
        return code;                       \
    }

MAKE(rename, other, (const char *path, const char *other), path, other)
MAKE(renameat, other, (int at, const char *path, int to, const char *other), at, path, to, other)
MAKE(mkdir, path, (const char *path, mode_t mode), path, mode)
MAKE(mkdirat, path, (int at, const char *path, mode_t mode), at, path, mode)
MAKE(unlink, path, (const char *path), path)
MAKE(unlinkat, path, (int at, const char *path, int flags), at, path, flags)
MAKE(rmdir, path, (const char *path), path)

/* Reads */

#define READ(name, parameters, ...)                                            \
    ssize_t name parameters {                                                  \
        if (control && has_place(file) && marks[file]) {                       \
            if (marks[file] == 2 || is_stale()) {                              \
                marks[file] = 2;                                               \
                errno = ESTALE;                                                \
                return -1;                                                     \
            }                                                                  \
        }                                                                      \
        return NEXT(name)(__VA_ARGS__);                                        \
    }

READ(read, (int file, void *to, size_t size), file, to, size)
READ(pread, (int file, void *to, size_t size, off_t at), file, to, size, at)
READ(pread64, (int file, void *to, size_t size, off64_t at), file, to, size, at)
READ(readv, (int file, const struct iovec *to, int count), file, to, count)
READ(preadv, (int file, const struct iovec *to, int count, off_t at), file, to, count, at)
READ(preadv64, (int file, const struct iovec *to, int count, off64_t at), file, to, count, at)

int close(int file) {
    if (has_place(file)) marks[file] = 0, ports[file] = 0;
    return NEXT(close)(file);
}

/* Locks */

int flock(int file, int operation) {
    if (control && control->unlocked) return 0;
    return NEXT(flock)(file, operation);
}

/* Clocks */

int clock_gettime(clockid_t clock, struct timespec *now) {
    int code = NEXT(clock_gettime)(clock, now);
    if (!code && control && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        double shift = control->clock_shift;
        now->tv_sec += (time_t)shift;
    }
    return code;
}

time_t time(time_t *place) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place) *place = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

/* Connections */

int connect(int file, const struct sockaddr *to, socklen_t size) {
    int is_ip = to->sa_family == AF_INET || to->sa_family == AF_INET6; /* in both the port is at the same place */
    if (has_place(file)) ports[file] = is_ip ? ntohs(((const struct sockaddr_in *)to)->sin_port) : 0;
    return NEXT(connect)(file, to, size);
}

static int is_to_no_hub(int file) {
    return control->hub_pid && control->hub_pid != getpid() && has_place(file) && ports[file] &&
           ports[file] != control->hub_port;
}

static int is_cut(int file) {
    if (!control || !((control->cut_pid && control->cut_pid == getpid()) || is_to_no_hub(file))) return 0;
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    if (getsockname(file, (struct sockaddr *)&name, &size) || name.ss_family == AF_UNIX) return 0;
    shutdown(file, SHUT_RDWR);
    errno = ECONNRESET;
    return 1;
}

#define TALK(name, parameters, ...)          \
    ssize_t name parameters {                \
        if (is_cut(file)) return -1;         \
        return NEXT(name)(__VA_ARGS__);      \
    }

TALK(recv, (int file, void *to, size_t size, int flags), file, to, size, flags)
TALK(recvmsg, (int file, struct msghdr *message, int flags), file, message, flags)
TALK(send, (int file, const void *from, size_t size, int flags), file, from, size, flags)
TALK(sendmsg, (int file, const struct msghdr *message, int flags), file, message, flags)
