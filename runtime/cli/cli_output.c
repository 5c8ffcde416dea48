/* cli_output.c - files that verbs write: whole or not at all, and refused before the work rather than after it.
 */
#include "runtime/cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int cli_check_output(const Args *args, const char *path)
{
	const char *slash = strrchr(path, '/');
	struct stat st;
	if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* a device is not ours to replace */
		return cli_say(args, EXIT_ENVIRONMENT, "%s: not a regular file", path);
	char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	bool good = folder && access(folder, W_OK | X_OK) == 0;
	int failure = errno;
	free(folder);
	return good ? 0 : cli_say(args, EXIT_ENVIRONMENT, "%s: %s", path, strerror(failure));
}

static bool is_flushed(FILE *file) { return fflush(file) == 0 && !ferror(file); }

int cli_write_file(const Args *args, const char *path, WriteFn *write, const void *what)
{
	if (!path) {
		write(what, stdout);
		return is_flushed(stdout) ? 0 : cli_say(args, EXIT_ENVIRONMENT, "stdout cannot be written");
	}
	char *name = malloc(strlen(path) + 16);
	if (!name)
		return cli_say(args, EXIT_ENVIRONMENT, "no memory to write %s", path);
	sprintf(name, "%s.XXXXXX", path);
	int fd = mkstemp(name);
	FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
	if (file)
		write(what, file);
	bool good = file && is_flushed(file) && fsync(fd) == 0;
	int failure = errno;
	if (file)
		good = fclose(file) == 0 && good;
	else if (fd >= 0)
		close(fd);
	if (good && (chmod(name, 0644) != 0 || rename(name, path) != 0)) {
		failure = errno;
		good = false;
	}
	if (!good && fd >= 0)
		unlink(name);
	free(name);
	return good ? 0 : cli_say(args, EXIT_ENVIRONMENT, "%s: %s", path, strerror(failure));
}
