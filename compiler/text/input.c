/* input.c - opening and reading regular files, and nothing else (see input.h). */
#include "compiler/text/input.h"
#include "artifacts/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of_file(mode_t mode)
{
	return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a FIFO" : S_ISSOCK(mode) ? "a socket" : "a device";
}

int input_open(Diags *d, const char *path, bool optional, int64_t *bytes)
{
	Loc at = {path, 0, 0};
	struct stat st;
	int fd;
	do /* O_NONBLOCK: a FIFO without a writer opens at once and is then refused */
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	while (fd < 0 && errno == EINTR);
	if (fd < 0 && errno == ENOENT && optional && lstat(path, &st) != 0)
		return INPUT_ABSENT;
	if (fd < 0 && (errno == ENXIO || errno == ENODEV)) { /* a socket, a device without a driver */
		fail_at(d, A0104, at, "not a regular file");
		return INPUT_FAILED;
	}
	if (fd < 0) {
		const int why = errno;
		char target[256];
		const ssize_t n = why == ENOENT ? readlink(path, target, sizeof target - 1) : -1;
		for (ssize_t i = 0; i < n; i++) /* a cache whose download did not end has links to nothing */
			target[i] = (char)((unsigned char)target[i] < ' ' || target[i] == 0x7f ? '?' : target[i]);
		if (n > 0)
			fail_at(d, A0102, at, "cannot be opened: a link to %.*s, which is missing", (int)n, target);
		else
			fail_at(d, A0102, at, "cannot be opened: %s", strerror(why));
		return INPUT_FAILED;
	}
	if (fstat(fd, &st) != 0) {
		fail_at(d, A0102, at, "cannot be examined: %s", strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		fail_at(d, A0104, at, "not a regular file but %s", kind_of_file(st.st_mode));
	} else {
		*bytes = st.st_size;
		return fd;
	}
	close(fd);
	return INPUT_FAILED;
}

bool input_pread(int fd, void *dst, size_t n, int64_t at)
{
	enum { MAX_READ_BYTES = 1 << 30 };
	for (size_t done = 0; done < n;) {
		size_t want = n - done < MAX_READ_BYTES ? n - done : MAX_READ_BYTES;
		ssize_t got = pread(fd, (char *)dst + done, want, at + (int64_t)done);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			if (got == 0)
				errno = 0;
			return false;
		}
		done += (size_t)got;
	}
	return true;
}

void input_note(Diags *d, const char *path, const char *text, size_t n)
{
	const char *slash = strrchr(path, '/');
	if (!n) /* an empty file says as much as none */
		return;
	InputFile new = {.bytes = (int64_t)n};
	snprintf(new.name, sizeof new.name, "%s", slash ? slash + 1 : path);
	sha256_of(text, n, new.sha256);
	int kept = 0;
	for (int i = 0; i < d->n_inputs; i++)
		if (strcmp(d->inputs[i].name, new.name) != 0 || memcmp(d->inputs[i].sha256, new.sha256, 32) != 0)
			d->inputs[kept++] = d->inputs[i];
	d->n_inputs = kept;
	if (d->n_inputs < INPUT_MAX)
		d->inputs[d->n_inputs++] = new;
}

void input_call(Diags *d, const char *name)
{
	if (d->n_inputs)
		snprintf(d->inputs[d->n_inputs - 1].name, sizeof d->inputs[0].name, "%s", name);
}

bool input_read(Arena *a, Diags *d, const char *path, bool optional, int64_t max_bytes, char **text, size_t *n)
{
	int64_t bytes;
	*text = NULL;
	*n = 0;
	int fd = input_open(d, path, optional, &bytes);
	if (fd < 0)
		return fd == INPUT_ABSENT;
	Loc at = {path, 0, 0};
	bool ok = true;
	if (bytes > max_bytes) {
		ok = fail_at(d, A0106, at, "%lld bytes: expected at most %lld", (long long)bytes, (long long)max_bytes);
	} else {
		*text = arena_alloc(a, (size_t)bytes + 1);
		*n = (size_t)bytes;
		if (!input_pread(fd, *text, *n, 0))
			ok = fail_at(d, A0102, at, "cannot be read: %s", errno ? strerror(errno) : "it became shorter meanwhile");
		else if (strncmp(*text, LFS_POINTER, sizeof LFS_POINTER - 1) == 0)
			ok = fail_at(d, A0102, at, "a Git LFS pointer, whose file `git lfs pull` fetches");
	}
	close(fd);
	if (!ok)
		*text = NULL;
	else
		input_note(d, path, *text, *n);
	return ok;
}

const char *input_name(const char *path, const char *otherwise)
{
	const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;
	for (const char *p = name; !p || *p; p++)
		if (!p || *p < ' ' || *p > '~')
			return otherwise;
	return name;
}

const char *input_path(Arena *a, const char *dir, const char *name)
{
	size_t n = strlen(dir);
	while (n > 1 && dir[n - 1] == '/')
		n--;
	return arena_printf(a, "%.*s%s%s", (int)n, dir, n && dir[n - 1] == '/' ? "" : "/", name);
}

size_t utf8_bad(const char *text, size_t n)
{
	const unsigned char *s = (const unsigned char *)text;
	for (size_t i = 0; i < n;) {
		unsigned lead = s[i];
		if (lead < 0x80) {
			i++;
			continue;
		}
		int more = lead >= 0xC2 && lead <= 0xDF ? 1 : lead >= 0xE0 && lead <= 0xEF ? 2 :
			lead >= 0xF0 && lead <= 0xF4 ? 3 : 0;
		if (!more || n - i <= (size_t)more)
			return i;
		unsigned second = s[i + 1];
		if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
				(lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))
			return i;
		for (int k = 1; k <= more; k++)
			if ((s[i + (size_t)k] & 0xC0) != 0x80)
				return i;
		i += (size_t)more + 1;
	}
	return n;
}
