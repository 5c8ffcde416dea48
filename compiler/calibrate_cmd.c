/* calibrate_cmd.c - `atlasc calibrate`: measures the scales of a quantised KV cache.
 *
 * What keys and values a model makes is known to who runs it, which is the other command: so the model is compiled for
 * the reference device, with its cache in bf16 and its weights left where they are, and `atlas calibrate`, which
 * stands beside this program, runs the text. The plan is a file beside the result and goes when that is there.
 */
#include "compiler/calibrate_cmd.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PATH_BYTES = 4096 };

static int say(const Compile *c, int code, const char *what, const char *why)
{
	(void)c;
	fprintf(stderr, "atlasc calibrate: %s: %s\n", what, why);
	return code;
}

/* The program `atlas` in the folder of this one, or NULL. */
static const char *find_atlas(Compile *c)
{
	char self[MAX_PATH_BYTES];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n <= 0)
		return NULL;
	self[n] = 0;
	const char *slash = strrchr(self, '/');
	const char *path = arena_printf(&c->arena, "%.*s/atlas", (int)(slash - self), self);
	return access(path, X_OK) == 0 ? path : NULL;
}

/* Runs it and waits; its exit code. */
static int run(Compile *c, const char *atlas, const char *plan, const char *output)
{
	const char *words[] = {"atlas", "calibrate", plan, "--weights", c->cmd.model_dir, "--file", c->cmd.text, "--output",
		output, c->cmd.quiet ? "-q" : NULL, NULL};
	char *argv[sizeof words / sizeof words[0]], *none[] = {NULL};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		argv[i] = words[i] ? arena_strdup(&c->arena, words[i]) : NULL;
	pid_t child;
	int status, failure = posix_spawn(&child, atlas, NULL, NULL, argv, none);
	if (failure)
		return say(c, EXIT_ENVIRONMENT, atlas, strerror(failure));
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return say(c, EXIT_ENVIRONMENT, atlas, strerror(errno));
	return WIFEXITED(status) ? WEXITSTATUS(status) : say(c, EXIT_INTERNAL, atlas, "was ended by a signal");
}

int calibrate_command(Compile *c, int (*compile)(Compile *c))
{
	const char *output = c->cmd.output, *atlas = find_atlas(c);
	bool is_quiet = c->cmd.quiet;
	if (!atlas)
		return say(c, EXIT_ENVIRONMENT, "atlas", "is not in the folder of this program");
	char *plan = arena_printf(&c->arena, "%s.plan-XXXXXX", output);
	int fd = mkstemp(plan);
	if (fd < 0)
		return say(c, EXIT_ENVIRONMENT, output, strerror(errno));
	close(fd);
	c->cmd.output = plan;
	c->cmd.n_targets = 0; /* the reference device */
	c->cmd.embed_weights = false;
	c->cmd.quiet = true;
	int code = compile(c);
	c->cmd.quiet = is_quiet;
	if (code == EXIT_OK)
		code = run(c, atlas, plan, output);
	unlink(plan);
	return code;
}
