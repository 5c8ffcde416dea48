/* unix_socket.c - see unix_socket.h. */
#include "runtime/serve/unix_socket.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static bool put_path(struct sockaddr_un *at, const char *path)
{
	const size_t n = strlen(path);
	*at = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (n < sizeof at->sun_path)
		memcpy(at->sun_path, path, n + 1);
	return n < sizeof at->sun_path;
}

/* Closes it and keeps errno. */
static int failed(int fd)
{
	const int error = errno;
	if (fd >= 0)
		close(fd);
	errno = error;
	return -1;
}

int unix_connect(const char *path)
{
	struct sockaddr_un at;
	if (!put_path(&at, path))
		return errno = ENAMETOOLONG, -1;
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return fd >= 0 && connect(fd, (const struct sockaddr *)&at, sizeof at) == 0 ? fd : failed(fd);
}

static void remove_stale(const char *path)
{
	struct stat st;
	if (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode))
		return;
	const int fd = unix_connect(path);
	if (fd >= 0)
		close(fd);
	else if (errno == ECONNREFUSED)
		unlink(path);
}

int unix_listen(const char *path, char *why, size_t why_bytes)
{
	struct sockaddr_un at;
	if (!put_path(&at, path)) {
		snprintf(why, why_bytes, "%s: a path of a socket has at most %zu bytes", path, sizeof at.sun_path - 1);
		return -1;
	}
	remove_stale(path);
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
	return failed(fd);
}
