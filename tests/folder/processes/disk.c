/* A disk that fails, or loses what was not flushed: loaded in front of the C library (LD_PRELOAD) by `disk.py`.

   Every call that changes or opens a file below one folder is counted. The n-th call can fail with an error, once or from
   then on, write only half, or kill the process; and every change can be written down, with its bytes, so that `disk.py`
   can build the folder as a loss of power would leave it. SQLite's calls pass through here like Python's. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPENED = 1, WRITTEN, FLUSHED, CUT, RENAMED, REMOVED, MADE, TOLD, LINKED };
enum { KILL = -1, HALF = -2 };

static char below[PATH_MAX];
static long counted, failing_at;
static int failing_with, from_then_on, is_watching, journal = -1;
static pthread_mutex_t turn = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static __thread int depth;

/* The C library's own function of this name. */
#define REAL(name)                                                                                                     \
    ({                                                                                                                 \
        static __typeof__(&name) real;                                                                                 \
        if (real == NULL) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                           \
        real;                                                                                                          \
    })

/* The folder to watch; the call that fails (0: none), how, and whether all calls after it do too; where changes go. */
void disk_watch(const char *folder, long at, int how, int onwards, int descriptor) {
    snprintf(below, sizeof below, "%s", folder);
    counted = 0, failing_at = at, failing_with = how, from_then_on = onwards, journal = descriptor;
    is_watching = below[0] != 0;
}

long disk_count(void) { return counted; }

static int is_below(const char *path) {
    size_t length = strlen(below);
    return strncmp(path, below, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static void put(const void *bytes, size_t length) {
    const char *at = bytes;
    while (length > 0) {
        ssize_t done = REAL(write)(journal, at, length);
        if (done <= 0) abort();
        at += done, length -= (size_t)done;
    }
}

static void note(int what, const char *path, const char *other, uint64_t place, const void *bytes, uint64_t length) {
    if (journal < 0) return;
    uint32_t sizes[3] = {(uint32_t)what, (uint32_t)strlen(path), (uint32_t)strlen(other)};
    uint64_t rest[2] = {place, length};
    put(sizes, sizeof sizes), put(rest, sizeof rest);
    put(path, sizes[1]), put(other, sizes[2]);
    if (bytes != NULL) put(bytes, length);
}

/* A mark between the changes: what happens before it was told to the outside. */
void disk_tell(void) {
    pthread_mutex_lock(&turn);
    if (is_watching) note(TOLD, "", "", 0, NULL, 0);
    pthread_mutex_unlock(&turn);
}

static int of_descriptor(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path) && strstr(path, " (deleted)") == NULL;
}

static int of_name(int folder, const char *name, char *path) {
    char start[PATH_MAX] = "";
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return is_below(path);
    }
    if (folder == AT_FDCWD) {
        if (getcwd(start, sizeof start) == NULL) return 0;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, start, sizeof start - 1);
        if (length < 0) return 0;
        start[length] = 0;
    }
    if (strlen(start) + strlen(name) + 2 > PATH_MAX) return 0;
    strcpy(path, start), strcat(path, "/"), strcat(path, name);
    return is_below(path);
}

static void enter(void) { pthread_mutex_lock(&turn), depth++; }

static void leave(void) {
    int kept = errno;
    depth--, pthread_mutex_unlock(&turn), errno = kept;
}

/* Count one call below the folder. Whether it fails: then errno is set, or it is to write one half only. */
static int fails(int *is_half) {
    counted++;
    if (failing_at == 0 || counted < failing_at || (counted > failing_at && !from_then_on)) return 0;
    if (failing_with == KILL) kill(getpid(), SIGKILL), pause();
    if (failing_with == HALF) {
        *is_half = 1;
        return 0;
    }
    errno = failing_with;
    return 1;
}

#define GUARDED(known, kind, wrong, real)                                                                              \
    kind found = wrong;                                                                                                \
    int is_half = 0;                                                                                                   \
    enter();                                                                                                           \
    char path[PATH_MAX], other[PATH_MAX];                                                                              \
    (void)other;                                                                                                       \
    int is_ours = is_watching && depth == 1 && (known);                                                                \
    if (!is_ours)                                                                                                      \
        found = real;                                                                                                  \
    else if (!fails(&is_half))

static ssize_t writing(int fd, const void *bytes, size_t size, off64_t place) {
    GUARDED(of_descriptor(fd, path), ssize_t, -1,
            place < 0 ? REAL(write)(fd, bytes, size) : REAL(pwrite64)(fd, bytes, size, place)) {
        size_t part = is_half && size > 1 ? size / 2 : size;
        off64_t at = place;
        if (at < 0) {
            int flags = fcntl(fd, F_GETFL);
            at = REAL(lseek64)(fd, 0, flags & O_APPEND ? SEEK_END : SEEK_CUR);
        }
        found = place < 0 ? REAL(write)(fd, bytes, part) : REAL(pwrite64)(fd, bytes, part, place);
        if (found > 0) note(WRITTEN, path, "", (uint64_t)at, bytes, (uint64_t)found);
    }
    leave();
    return found;
}

ssize_t write(int fd, const void *bytes, size_t size) { return writing(fd, bytes, size, -1); }
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t place) { return writing(fd, bytes, size, place); }
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t place) { return writing(fd, bytes, size, place); }

#define FLUSHING(name)                                                                                                 \
    int name(int fd) {                                                                                                 \
        GUARDED(of_descriptor(fd, path), int, -1, REAL(name)(fd)) {                                                    \
            found = REAL(name)(fd);                                                                                    \
            if (found == 0) note(FLUSHED, path, "", 0, NULL, 0);                                                       \
        }                                                                                                              \
        leave();                                                                                                       \
        return found;                                                                                                  \
    }
FLUSHING(fsync)
FLUSHING(fdatasync)

#define CUTTING(name, kind)                                                                                            \
    int name(int fd, kind size) {                                                                                      \
        GUARDED(of_descriptor(fd, path), int, -1, REAL(name)(fd, size)) {                                              \
            found = REAL(name)(fd, size);                                                                              \
            if (found == 0) note(CUT, path, "", (uint64_t)size, NULL, 0);                                              \
        }                                                                                                              \
        leave();                                                                                                       \
        return found;                                                                                                  \
    }
CUTTING(ftruncate, off_t)
CUTTING(ftruncate64, off64_t)

static int lengthened(int fd, const char *path, int mode, off64_t end) {
    struct stat facts;
    if (mode == 0 && fstat(fd, &facts) == 0 && facts.st_size == end) note(CUT, path, "", (uint64_t)end, NULL, 0);
    return 0;
}

#define ALLOCATING(name, kind)                                                                                         \
    int name(int fd, int mode, kind place, kind size) {                                                                \
        GUARDED(of_descriptor(fd, path), int, -1, REAL(name)(fd, mode, place, size)) {                                 \
            found = REAL(name)(fd, mode, place, size);                                                                 \
            if (found == 0) lengthened(fd, path, mode, place + size);                                                  \
        }                                                                                                              \
        leave();                                                                                                       \
        return found;                                                                                                  \
    }
ALLOCATING(fallocate, off_t)
ALLOCATING(fallocate64, off64_t)

#define RESERVING(name, kind)                                                                                          \
    int name(int fd, kind place, kind size) {                                                                          \
        GUARDED(of_descriptor(fd, path), int, errno, REAL(name)(fd, place, size)) {                                    \
            found = REAL(name)(fd, place, size);                                                                       \
            if (found == 0) lengthened(fd, path, 0, place + size);                                                     \
        } else                                                                                                         \
            found = errno;                                                                                             \
        leave();                                                                                                       \
        return found;                                                                                                  \
    }
RESERVING(posix_fallocate, off_t)
RESERVING(posix_fallocate64, off64_t)

static int opening(int folder, const char *name, int flags, mode_t mode) {
    GUARDED(of_name(folder, name, path), int, -1, REAL(openat64)(folder, name, flags, mode)) {
        struct stat facts;
        int was_there = fstatat(folder, name, &facts, AT_SYMLINK_NOFOLLOW) == 0;
        found = REAL(openat64)(folder, name, flags, mode);
        if (found >= 0 && flags & O_CREAT && !was_there) note(OPENED, path, "", 0, NULL, 0);
        if (found >= 0 && flags & O_TRUNC && was_there) note(CUT, path, "", 0, NULL, 0);
    }
    leave();
    return found;
}

static mode_t mode_of(int flags, va_list rest) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; }

#define OPENING(name)                                                                                                  \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_of(flags, rest);                                                                            \
        va_end(rest);                                                                                                  \
        return opening(AT_FDCWD, path, flags, mode);                                                                   \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name)                                                                                               \
    int name(int folder, const char *path, int flags, ...) {                                                           \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_of(flags, rest);                                                                            \
        va_end(rest);                                                                                                  \
        return opening(folder, path, flags, mode);                                                                     \
    }
OPENING_AT(openat)
OPENING_AT(openat64)

static int removing(int folder, const char *name, int flags) {
    GUARDED(of_name(folder, name, path), int, -1, REAL(unlinkat)(folder, name, flags)) {
        found = REAL(unlinkat)(folder, name, flags);
        if (found == 0) note(REMOVED, path, "", 0, NULL, 0);
    }
    leave();
    return found;
}

int unlinkat(int folder, const char *name, int flags) { return removing(folder, name, flags); }
int unlink(const char *name) { return removing(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return removing(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int folder, const char *name, mode_t mode) {
    GUARDED(of_name(folder, name, path), int, -1, REAL(mkdirat)(folder, name, mode)) {
        found = REAL(mkdirat)(folder, name, mode);
        if (found == 0) note(MADE, path, "", 0, NULL, 0);
    }
    leave();
    return found;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int renameat(int from, const char *name, int to, const char *next) {
    GUARDED(of_name(from, name, path) & of_name(to, next, other), int, -1, REAL(renameat)(from, name, to, next)) {
        found = REAL(renameat)(from, name, to, next);
        if (found == 0) note(RENAMED, path, other, 0, NULL, 0);
    }
    leave();
    return found;
}
int rename(const char *name, const char *next) { return renameat(AT_FDCWD, name, AT_FDCWD, next); }

/* A file without a name gets its first one. Its content is taken as flushed, as `core/files.py` does before. */
static void note_first_name(int folder, const char *name, const char *path) {
    static char content[1 << 20];
    int descriptor = REAL(openat64)(folder, name, O_RDONLY | O_CLOEXEC);
    ssize_t size = descriptor < 0 ? -1 : read(descriptor, content, sizeof content);
    if (size < 0) abort();
    close(descriptor);
    note(OPENED, path, "", 0, NULL, 0);
    note(WRITTEN, path, "", 0, content, (uint64_t)size);
    note(FLUSHED, path, "", 0, NULL, 0);
}

int linkat(int from, const char *name, int to, const char *next, int flags) {
    GUARDED(of_name(to, next, other), int, -1, REAL(linkat)(from, name, to, next, flags)) {
        found = REAL(linkat)(from, name, to, next, flags);
        if (found == 0 && of_name(from, name, path))
            note(LINKED, path, other, 0, NULL, 0);
        else if (found == 0)
            note_first_name(to, next, other);
    }
    leave();
    return found;
}

int link(const char *name, const char *next) { return linkat(AT_FDCWD, name, AT_FDCWD, next, 0); }
