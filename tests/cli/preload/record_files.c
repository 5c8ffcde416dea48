/* record_files.c - preloaded into a command: a line for each thing it does to files that it writes, and faults.
 *
 * RECORD_TO names the file that gets the lines; an inode stands for a file, whatever names it has.
 *
 *   write INODE END        bytes up to END of the file are written
 *   fsync INODE            of a file
 *   fsync-folder INODE
 *   name INODE PATH        by linkat or rename
 *   unlink PATH
 *   read PATH              opened for reading
 *   fault CALL             it failed as RECORD_FAULT asked
 *
 * RECORD_FAULT: CALL:N:ERRNO makes the N-th such call of the process fail, of the calls write (pwrite too), fsync,
 * fsync-folder, linkat, rename, and tmpfile: an open with O_TMPFILE. N = 0 is every one. CALL "short" lets each write
 * take half of what it is given. Regular files alone are counted.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REAL(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)

static void record(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void record(const char *fmt, ...)
{
	char line[8192];
	va_list args;
	const char *to = getenv("RECORD_TO");
	const int before = errno;
	va_start(args, fmt);
	int n = vsnprintf(line, sizeof line - 1, fmt, args);
	va_end(args);
	line[n++] = '\n';
	const int fd = to ? (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	if (fd < 0 || syscall(SYS_write, fd, line, (size_t)n) != n)
		_exit(99);
	syscall(SYS_close, fd);
	errno = before;
}

/* Shall this call fail? errno says how. */
static bool fails(const char *call)
{
	static struct { const char *name; atomic_int n; } counts[] = {
		{"write", 0}, {"fsync", 0}, {"fsync-folder", 0}, {"linkat", 0}, {"rename", 0}, {"tmpfile", 0}};
	char wanted[32];
	int at, error, n = 0;
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		if (strcmp(counts[i].name, call) == 0)
			n = atomic_fetch_add(&counts[i].n, 1) + 1;
	const char *fault = getenv("RECORD_FAULT");
	if (!fault || sscanf(fault, "%31[^:]:%d:%d", wanted, &at, &error) != 3 || strcmp(wanted, call) != 0 ||
		(at != n && at != 0))
		return false;
	record("fault %s", call);
	errno = error;
	return true;
}

static bool is_regular(int fd, struct stat *st) { return fstat(fd, st) == 0 && S_ISREG(st->st_mode); }

static size_t part_of(size_t n)
{
	const char *fault = getenv("RECORD_FAULT");
	return fault && strcmp(fault, "short") == 0 && n > 1 ? n / 2 : n;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
	struct stat st;
	if (!is_regular(fd, &st))
		return REAL(write, fd, bytes, n);
	if (fails("write"))
		return -1;
	const ssize_t done = REAL(write, fd, bytes, part_of(n));
	if (done >= 0)
		record("write %lu %ld", (unsigned long)st.st_ino, (long)lseek(fd, 0, SEEK_CUR));
	return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
	struct stat st;
	if (!is_regular(fd, &st))
		return REAL(pwrite, fd, bytes, n, at);
	if (fails("write"))
		return -1;
	const ssize_t done = REAL(pwrite, fd, bytes, part_of(n), at);
	if (done >= 0)
		record("write %lu %ld", (unsigned long)st.st_ino, (long)(at + done));
	return done;
}

/* A stream's own writes do not go through the function above; those of a stream with functions of its own do. As libc
 * does, one goes on until an error. */
static ssize_t write_stream(void *cookie, const char *bytes, size_t n)
{
	size_t done = 0;
	while (done < n) {
		const ssize_t more = write((int)(long)cookie, bytes + done, n - done);
		if (more < 0)
			break;
		done += (size_t)more;
	}
	return (ssize_t)done;
}

static int close_stream(void *cookie) { return close((int)(long)cookie); }

FILE *fdopen(int fd, const char *mode)
{
	struct stat st;
	if (mode[0] != 'w' || !is_regular(fd, &st))
		return REAL(fdopen, fd, mode);
	return fopencookie((void *)(long)fd, mode, (cookie_io_functions_t){.write = write_stream, .close = close_stream});
}

int fsync(int fd)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return -1;
	const char *call = S_ISDIR(st.st_mode) ? "fsync-folder" : "fsync";
	if (fails(call))
		return -1;
	const int done = REAL(fsync, fd);
	if (done == 0)
		record("%s %lu", call, (unsigned long)st.st_ino);
	return done;
}

static int named(int done, const char *path)
{
	struct stat st;
	if (done == 0 && lstat(path, &st) == 0)
		record("name %lu %s", (unsigned long)st.st_ino, path);
	return done;
}

int rename(const char *from, const char *to)
{
	return fails("rename") ? -1 : named(REAL(rename, from, to), to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
	return fails("linkat") ? -1 : named(REAL(linkat, from_folder, from, to_folder, to, flags), to);
}

int unlink(const char *path)
{
	const int done = REAL(unlink, path);
	if (done == 0)
		record("unlink %s", path);
	return done;
}

int open(const char *path, int flags, ...)
{
	va_list args;
	va_start(args, flags);
	const mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	if ((flags & O_TMPFILE) == O_TMPFILE && fails("tmpfile"))
		return -1;
	const int fd = REAL(open, path, flags, mode);
	if (fd >= 0 && (flags & O_ACCMODE) == O_RDONLY && !(flags & O_DIRECTORY))
		record("read %s", path);
	return fd;
}
