#include "runtime/plan_file.h"
#include "artifacts/plan.h"
#include "runtime/device.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
	TICK_NS = 20 * 1000 * 1000, /* a file system may give all writes of so long a time one time stamp */
	MAX_LARGE = 64,             /* sections */
	HEAD_BYTES = 48,            /* before a plan's manifest */
	MOST_MANIFEST = 1 << 20,    /* far more than all sections there may be take */
};

/* Reads n bytes at `at` of the file. False with errno 0: it is shorter. */
static bool read_at(const PlanFile *f, int64_t at, uint8_t *to, int64_t n)
{
	while (n > 0) {
		const ssize_t done = pread(f->fd, to, (size_t)n, (off_t)at);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0) {
			errno = done ? errno : 0;
			return false;
		}
		at += done;
		to += done;
		n -= done;
	}
	return true;
}

/* Reads [from, to) of the file to the same place of the mapping. */
static bool fill(const PlanFile *f, uint8_t *bytes, int64_t from, int64_t to)
{
	return read_at(f, from, bytes + from, to - from);
}

/* Copies all but the whole pages of large sections, which are mapped in their places. The file's head is the copy that
 * was looked at, so sections lie where it says whatever becomes of the file. */
static bool copy_sections(const PlanFile *f, uint8_t *bytes)
{
	const int64_t page = sysconf(_SC_PAGESIZE);
	const int64_t manifest = f->n < HEAD_BYTES || !fill(f, bytes, 0, HEAD_BYTES) ? -1
		: bytes[12] | bytes[13] << 8 | bytes[14] << 16 | (int64_t)bytes[15] << 24;
	int64_t places[MAX_LARGE][2], at = HEAD_BYTES + manifest;
	if (manifest < 0 || manifest > MOST_MANIFEST || at > f->n)
		return f->n >= HEAD_BYTES || fill(f, bytes, 0, f->n); /* nothing that the reader goes on with */
	if (!fill(f, bytes, HEAD_BYTES, at))
		return false;
	const int n = artifact_large_sections(bytes, at, places, MAX_LARGE);
	if (n == -2)
		errno = ENOMEM;
	if (n < 0)
		return n == -1;
	for (int i = 0; i < n; i++) {
		const int64_t from = (places[i][0] + page - 1) / page * page, to = places[i][1] / page * page;
		if (from < at || to <= from || to > f->n)
			continue; /* small, or out of order: then it is copied, and refused */
		if (!fill(f, bytes, at, from) || mmap(bytes + from, (size_t)(to - from), PROT_READ, MAP_PRIVATE | MAP_FIXED,
			f->fd, (off_t)from) == MAP_FAILED)
			return false;
		at = to;
	}
	return fill(f, bytes, at, f->n);
}

/* May a change from now on leave the file's times as they are? */
static bool is_fresh(const struct stat *st)
{
	struct timespec now;
	const struct timespec *changed = &st->st_ctim;
	if (clock_gettime(CLOCK_REALTIME, &now) != 0)
		return true;
	return (int64_t)(now.tv_sec - changed->tv_sec) * 1000000000 + (now.tv_nsec - changed->tv_nsec) < TICK_NS;
}

static AtlasStatus map(const char *path, bool is_plan, PlanFile *f, AtlasError *error)
{
	if (fstat(f->fd, &f->opened) != 0 || !S_ISREG(f->opened.st_mode))
		return error_set(error, ATLAS_IO, "%.300s: not a regular file", path);
	f->n = f->opened.st_size;
	f->is_fresh = is_fresh(&f->opened);
	if (f->n == 0)
		return error_set(error, ATLAS_NOT_A_PLAN, "%.300s: the file is empty", path);
	void *bytes = is_plan
		? mmap(NULL, (size_t)f->n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
		: mmap(NULL, (size_t)f->n, PROT_READ, MAP_PRIVATE, f->fd, 0);
	if (bytes == MAP_FAILED)
		return error_set(error, ATLAS_IO, "%.300s: cannot be mapped: %s", path, strerror(errno));
	f->bytes = bytes;
	if (!is_plan || (copy_sections(f, bytes) && mprotect(bytes, (size_t)f->n, PROT_READ) == 0))
		return ATLAS_OK;
	return errno ? error_set(error, errno == ENOMEM ? ATLAS_NO_MEMORY : ATLAS_IO, "%.300s: cannot be read: %s", path,
		strerror(errno))
		: error_set(error, ATLAS_INTEGRITY, "%.300s: it was cut while it was read", path);
}

AtlasStatus plan_file_open(int at, const char *path, bool is_plan, PlanFile *f, AtlasError *error)
{
	*f = (PlanFile){.fd = openat(at, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
	if (f->fd < 0)
		return error_set(error, ATLAS_IO, "%.300s: %s", path, strerror(errno));
	const AtlasStatus s = map(path, is_plan, f, error);
	if (s != ATLAS_OK)
		plan_file_close(f);
	return s;
}

void plan_file_close(PlanFile *f)
{
	if (f->bytes)
		munmap((void *)(uintptr_t)f->bytes, (size_t)f->n);
	f->bytes = NULL;
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

bool plan_files_copy(const PlanFiles *files, const void *from, void *to, size_t n)
{
	const uintptr_t at = (uintptr_t)from;
	for (int i = 0; files && i < files->n; i++) {
		const PlanFile *f = &files->list[i];
		const uintptr_t first = (uintptr_t)f->bytes;
		if (at < first || at - first > (uintptr_t)f->n || n > (uintptr_t)f->n - (at - first))
			continue;
		return read_at(f, (int64_t)(at - first), to, (int64_t)n);
	}
	memcpy(to, from, n);
	return true;
}

static bool is_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

const PlanFile *plan_files_changed(const PlanFiles *files)
{
	for (int i = 0; files && i < files->n; i++) {
		const struct stat *was = &files->list[i].opened;
		struct stat now;
		if (fstat(files->list[i].fd, &now) != 0 || now.st_size != was->st_size || !is_time(&now.st_mtim, &was->st_mtim))
			return &files->list[i];
	}
	return NULL;
}

bool plan_files_doubtful(const PlanFiles *files)
{
	for (int i = 0; files && i < files->n; i++) {
		struct stat now;
		if (files->list[i].is_fresh || fstat(files->list[i].fd, &now) != 0 ||
			!is_time(&now.st_ctim, &files->list[i].opened.st_ctim))
			return true;
	}
	return false;
}
