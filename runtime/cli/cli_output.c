/* cli_output.c - files that verbs write: whole or not at all, and refused before the work rather than after it.
 */
#include "artifacts/new_file.h"
#include "runtime/cli/cli.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int cli_check_output(const Args *args, const char *path)
{
	char why[256] = "";
	return new_file_may_begin(path, why, sizeof why) ? 0 : cli_say(args, EXIT_ENVIRONMENT, "%s: %s", path, why);
}

static bool is_flushed(FILE *file) { return fflush(file) == 0 && !ferror(file); }

int cli_write_file(const Args *args, const char *path, WriteFn *write, const void *what)
{
	if (!path) {
		write(what, stdout);
		return is_flushed(stdout) ? 0 : cli_say(args, EXIT_ENVIRONMENT, "stdout cannot be written");
	}
	char why[256] = "";
	NewFile f;
	if (!new_file_begin(&f, path, why, sizeof why))
		return cli_say(args, EXIT_ENVIRONMENT, "%s: %s", path, why);
	const int fd = dup(f.fd); /* the stream closes its own */
	FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
	if (file)
		write(what, file);
	bool good = file && is_flushed(file);
	if (!good)
		snprintf(why, sizeof why, "cannot be written: %s", strerror(errno));
	if (file)
		fclose(file);
	else if (fd >= 0)
		close(fd);
	if (good)
		good = new_file_end(&f);
	else
		new_file_abandon(&f);
	return good ? 0 : cli_say(args, EXIT_ENVIRONMENT, "%s: %s", path, why);
}
