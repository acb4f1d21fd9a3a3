/* Keeps what every file held when it was removed, cut off or replaced: that is what a disk still holds afterwards.

   Preloaded into a process, it writes one line for each such call to the file $GRAVEYARD: what was called, whether
   the file had bytes that were not flushed, its name, and those of its bytes that are not zeros, as hexadecimal
   digits. Calls of SQLite and of every other library are seen too. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST 65536
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { dev_t device; ino_t number; } unflushed[MOST];
static int count;

#define REAL(name, type) static __typeof__(type) real; if (!real) real = (__typeof__(type))dlsym(RTLD_NEXT, name)

static void mark(int file, int dirty) {
    struct stat found;
    int place;
    if (fstat(file, &found) || !S_ISREG(found.st_mode)) return;
    pthread_mutex_lock(&lock);
    for (place = 0; place < count; place++)
        if (unflushed[place].device == found.st_dev && unflushed[place].number == found.st_ino) break;
    if (dirty && place == count && count < MOST) {
        unflushed[count].device = found.st_dev;
        unflushed[count++].number = found.st_ino;
    } else if (!dirty && place < count) {
        unflushed[place] = unflushed[--count];
    }
    pthread_mutex_unlock(&lock);
}

static int forget(const struct stat *found) {
    int place, was = 0;
    pthread_mutex_lock(&lock);
    for (place = 0; place < count; place++)
        if (unflushed[place].device == found->st_dev && unflushed[place].number == found->st_ino) {
            unflushed[place] = unflushed[--count];
            was = 1;
            break;
        }
    pthread_mutex_unlock(&lock);
    return was;
}

static void bury(const char *call, int folder, const char *name, int file, off_t start) {
    const char *target = getenv("GRAVEYARD");
    static int (*open_it)(int, const char *, int, ...);
    struct stat found;
    unsigned char *bytes;
    char *line;
    int out, dirty;
    ssize_t size = 0, more, place;
    size_t length;
    if (!target) return;
    if (!open_it) open_it = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");
    if (name) {
        if (fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) || !S_ISREG(found.st_mode) || found.st_nlink > 1) return;
        file = open_it(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    } else {
        char path[64];
        if (fstat(file, &found) || !S_ISREG(found.st_mode)) return;
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        file = open_it(AT_FDCWD, path, O_RDONLY | O_CLOEXEC); /* it may be open for writing only */
        name = "";
    }
    if (file < 0 || found.st_size <= start) {
        if (file >= 0) close(file);
        return;
    }
    dirty = forget(&found);
    char path[64], whole[4096];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    more = readlink(path, whole, sizeof whole - 1);
    whole[more < 0 ? 0 : more] = 0;
    bytes = malloc(found.st_size - start + 1);
    while ((more = pread(file, bytes + size, found.st_size - start - size, start + size)) > 0) size += more;
    close(file);
    line = malloc(2 * size + sizeof whole + 100);
    length = sprintf(line, "%s\t%s\t%s\t", call, dirty ? "unflushed" : "flushed", whole);
    for (place = size; place > 0 && !bytes[place - 1]; place--) {}
    size = place;
    for (place = 0; place < size; place++) length += sprintf(line + length, "%02x", bytes[place]);
    line[length++] = '\n';
    out = open_it(AT_FDCWD, target, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (out >= 0) {
        static ssize_t (*write_it)(int, const void *, size_t);
        if (!write_it) write_it = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
        if (write_it(out, line, length) < 0) abort();
        close(out);
    }
    free(line);
    free(bytes);
}

int unlink(const char *name) {
    REAL("unlink", int (*)(const char *));
    bury("unlink", AT_FDCWD, name, -1, 0);
    return real(name);
}

int unlinkat(int folder, const char *name, int flags) {
    REAL("unlinkat", int (*)(int, const char *, int));
    if (!(flags & AT_REMOVEDIR)) bury("unlink", folder, name, -1, 0);
    return real(folder, name, flags);
}

int rename(const char *from, const char *to) {
    REAL("rename", int (*)(const char *, const char *));
    bury("replace", AT_FDCWD, to, -1, 0);
    return real(from, to);
}

int renameat(int here, const char *from, int there, const char *to) {
    REAL("renameat", int (*)(int, const char *, int, const char *));
    bury("replace", there, to, -1, 0);
    return real(here, from, there, to);
}

int ftruncate(int file, off_t size) {
    REAL("ftruncate", int (*)(int, off_t));
    bury("truncate", 0, NULL, file, size);
    return real(file, size);
}

int ftruncate64(int file, off_t size) {
    REAL("ftruncate64", int (*)(int, off_t));
    bury("truncate", 0, NULL, file, size);
    return real(file, size);
}

int truncate(const char *name, off_t size) {
    REAL("truncate", int (*)(const char *, off_t));
    bury("truncate", AT_FDCWD, name, -1, size);
    return real(name, size);
}

#define OPEN(symbol)                                                                                          \
    int symbol(const char *name, int flags, ...) {                                                            \
        REAL(#symbol, int (*)(const char *, int, ...));                                                       \
        va_list rest;                                                                                         \
        va_start(rest, flags);                                                                                \
        mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;                                           \
        va_end(rest);                                                                                         \
        if (flags & O_TRUNC) bury("truncate", AT_FDCWD, name, -1, 0);                                         \
        return real(name, flags, mode);                                                                       \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(symbol)                                                                                        \
    int symbol(int folder, const char *name, int flags, ...) {                                                \
        REAL(#symbol, int (*)(int, const char *, int, ...));                                                  \
        va_list rest;                                                                                         \
        va_start(rest, flags);                                                                                \
        mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;                                           \
        va_end(rest);                                                                                         \
        if (flags & O_TRUNC) bury("truncate", folder, name, -1, 0);                                           \
        return real(folder, name, flags, mode);                                                               \
    }
OPENAT(openat)
OPENAT(openat64)

#define WRITE(symbol, arguments, values)                                                                      \
    ssize_t symbol arguments {                                                                                \
        REAL(#symbol, ssize_t (*) arguments);                                                                 \
        ssize_t done = real values;                                                                           \
        if (done > 0) mark(file, 1);                                                                          \
        return done;                                                                                          \
    }
WRITE(write, (int file, const void *bytes, size_t size), (file, bytes, size))
WRITE(pwrite, (int file, const void *bytes, size_t size, off_t start), (file, bytes, size, start))
WRITE(pwrite64, (int file, const void *bytes, size_t size, off_t start), (file, bytes, size, start))
WRITE(writev, (int file, const struct iovec *bytes, int size), (file, bytes, size))

int fsync(int file) {
    REAL("fsync", int (*)(int));
    int done = real(file);
    if (!done) mark(file, 0);
    return done;
}

int fdatasync(int file) {
    REAL("fdatasync", int (*)(int));
    int done = real(file);
    if (!done) mark(file, 0);
    return done;
}
