/* A disk that fails, for tests: preloaded, it makes calls that write below one folder fail from the n-th on.

   Python, Rust (safetensors, tokenizers), C++ (Arrow) and numpy all write through these functions of libc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX], failed[PATH_MAX];
static long count, first;
static int lasting, number, armed;

/* Calls below `folder` are counted; the `n`-th fails with an error number, and all later ones, too, where it lasts. */
void full_disk_arm(const char *folder, long n, int lasts, int error) {
    snprintf(root, sizeof root, "%s", folder);
    failed[0] = 0;
    count = 0, first = n, lasting = lasts, number = error, armed = 1;
}

/* Ends it; returns how many calls were counted. */
long full_disk_disarm(void) { armed = 0; return count; }

/* The file of the first call that failed; empty where none did. */
const char *full_disk_failed(void) { return failed; }

static int fails(const char *path) {
    if (!armed || strncmp(path, root, strlen(root)) != 0) return 0;
    pthread_mutex_lock(&lock);
    int now = ++count == first || (lasting && first > 0 && count > first);
    if (now && !failed[0]) snprintf(failed, sizeof failed, "%s", path);
    pthread_mutex_unlock(&lock);
    if (now) errno = number;
    return now;
}

static int fails_handle(int handle) {
    char link[64], path[PATH_MAX];
    if (!armed) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return fails(path);
}

static int fails_new(const char *path) {
    struct stat facts;
    return armed && stat(path, &facts) != 0 && fails(path);
}

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)
#define WRITES(type, name, failure, test, declared, given) \
    type name declared { \
        static type (*real) declared; \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name); \
        return test ? failure : real given; \
    }
#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, int); va_end(more); \
        REAL(int, name, const char *, int, ...); \
        return (flags & O_CREAT) && fails_new(path) ? -1 : real(path, flags, mode); \
    }
#define OPENS_AT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, int); va_end(more); \
        REAL(int, name, int, const char *, int, ...); \
        return (flags & O_CREAT) && fails_new(path) ? -1 : real(folder, path, flags, mode); \
    }

OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)
WRITES(ssize_t, write, -1, fails_handle(handle), (int handle, const void *data, size_t size), (handle, data, size))
WRITES(ssize_t, pwrite, -1, fails_handle(handle), (int handle, const void *data, size_t size, off_t at), (handle, data, size, at))
WRITES(ssize_t, pwrite64, -1, fails_handle(handle), (int handle, const void *data, size_t size, off64_t at), (handle, data, size, at))
WRITES(ssize_t, writev, -1, fails_handle(handle), (int handle, const struct iovec *parts, int size), (handle, parts, size))
WRITES(ssize_t, sendfile, -1, fails_handle(to), (int to, int from, off_t *at, size_t size), (to, from, at, size))
WRITES(ssize_t, sendfile64, -1, fails_handle(to), (int to, int from, off64_t *at, size_t size), (to, from, at, size))
WRITES(size_t, fwrite, 0, fails_handle(fileno(file)), (const void *data, size_t size, size_t many, FILE *file), (data, size, many, file))
WRITES(int, fsync, -1, fails_handle(handle), (int handle), (handle))
WRITES(int, fdatasync, -1, fails_handle(handle), (int handle), (handle))
WRITES(int, ftruncate, -1, fails_handle(handle), (int handle, off_t size), (handle, size))
WRITES(int, ftruncate64, -1, fails_handle(handle), (int handle, off64_t size), (handle, size))
WRITES(int, posix_fallocate, number, fails_handle(handle), (int handle, off_t at, off_t size), (handle, at, size))
WRITES(int, posix_fallocate64, number, fails_handle(handle), (int handle, off64_t at, off64_t size), (handle, at, size))
WRITES(int, mkdir, -1, fails_new(path), (const char *path, mode_t mode), (path, mode))
WRITES(int, link, -1, fails_new(to), (const char *from, const char *to), (from, to))
WRITES(int, linkat, -1, fails_new(to), (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
WRITES(int, rename, -1, fails(to), (const char *from, const char *to), (from, to))
