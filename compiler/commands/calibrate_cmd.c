/* calibrate_cmd.c - `atlasc calibrate`: measures the scales of a quantised KV cache.
 *
 * What keys and values a model makes is known to who runs it, which is the other command: so the model is compiled for
 * the reference device, with its cache in bf16 and its weights left where they are, and `atlas calibrate`, which
 * is next to this program, runs the text. The plan is a file next to the result that loses its name as soon as it is
 * there: `atlas` reads it by its descriptor, and nothing is left whatever ends the two.
 */
#include "compiler/commands/calibrate_cmd.h"
#include "artifacts/message.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PATH_BYTES = 4096 };

static int say(const Compile *c, int code, const char *what, const char *why)
{
	message_head(stderr, message_is_colored(c->cmd.color, stderr), "atlasc calibrate", MESSAGE_ERROR, NULL);
	fprintf(stderr, "%s: %s\n", what, why);
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

/* Runs it until it ends; its exit code. What interrupts this program, whose signals wait (`held`), it gets as well;
 * `before` is what it starts with. */
static int run(Compile *c, const char *atlas, const char *plan, const char *output, const sigset_t *held,
	const sigset_t *before)
{
	const char *words[] = {"atlas", "calibrate", plan, "--weights", c->cmd.model_dir, "--file", c->cmd.text, "--output",
		output, "--color", c->cmd.color ? c->cmd.color : "auto", c->cmd.quiet ? "-q" : NULL, NULL};
	char *argv[sizeof words / sizeof words[0]], *none[] = {NULL};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		argv[i] = words[i] ? arena_strdup(&c->arena, words[i]) : NULL;
	posix_spawnattr_t attr;
	pid_t child;
	int status, seen, interrupted_by = 0, failure = posix_spawnattr_init(&attr);
	if (failure)
		return say(c, EXIT_ENVIRONMENT, atlas, strerror(failure));
	posix_spawnattr_setsigmask(&attr, before);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	failure = posix_spawn(&child, atlas, NULL, &attr, argv, none);
	posix_spawnattr_destroy(&attr);
	if (failure)
		return say(c, EXIT_ENVIRONMENT, atlas, strerror(failure));
	while (waitpid(child, &status, WNOHANG) == 0)
		if (sigwait(held, &seen) == 0 && seen != SIGCHLD)
			kill(child, interrupted_by = seen);
	if (interrupted_by)
		return raise(interrupted_by), EXIT_INTERRUPTED; /* it waits until the plan is gone */
	return WIFEXITED(status) ? WEXITSTATUS(status) : say(c, EXIT_INTERNAL, atlas, "was ended by a signal");
}

/* With signals that wait: a plan that is no result must lose its name. */
static int measure(Compile *c, int (*compile)(Compile *c), const char *atlas, const sigset_t *held,
	const sigset_t *before)
{
	const char *output = c->cmd.output;
	bool is_quiet = c->cmd.quiet;
	char *plan = arena_printf(&c->arena, "%s.plan-%d", output, (int)getpid());
	c->cmd.output = plan;
	c->cmd.n_targets = 0; /* the reference device */
	c->cmd.embed_weights = false;
	c->cmd.quiet = true;
	int code = compile(c);
	c->cmd.quiet = is_quiet;
	if (code != EXIT_OK)
		return code;
	const int fd = open(plan, O_RDONLY); /* for the other program as well */
	unlink(plan);
	if (fd < 0)
		return say(c, EXIT_ENVIRONMENT, plan, strerror(errno));
	code = run(c, atlas, arena_printf(&c->arena, "/proc/self/fd/%d", fd), output, held, before);
	close(fd);
	return code;
}

int calibrate_command(Compile *c, int (*compile)(Compile *c))
{
	const char *atlas = find_atlas(c);
	sigset_t held, before;
	if (!atlas)
		return say(c, EXIT_ENVIRONMENT, "atlas", "is not in the folder of this program");
	sigemptyset(&held);
	sigaddset(&held, SIGINT);
	sigaddset(&held, SIGTERM);
	sigaddset(&held, SIGHUP);
	sigaddset(&held, SIGCHLD);
	sigprocmask(SIG_BLOCK, &held, &before);
	int code = measure(c, compile, atlas, &held, &before);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return code;
}
