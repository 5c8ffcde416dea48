/* unix_socket.h - sockets that have a path. */
#ifndef ATLAS_UNIX_SOCKET_H
#define ATLAS_UNIX_SOCKET_H

#include <stddef.h>

/* Listens at the path, in place of a socket that was left by a process that was killed. A descriptor that does not
 * block; -1 with a sentence in why. */
int unix_listen(const char *path, char *why, size_t why_bytes);
/* A descriptor; -1 with errno, ECONNREFUSED or ENOENT where no process listens. */
int unix_connect(const char *path);

#endif
