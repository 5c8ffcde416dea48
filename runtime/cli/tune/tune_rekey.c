/* tune_rekey.c - atlas tune TIMES --rekey OLD_ATLASC: keep the times of kernels that are written otherwise and run as
 * before.
 *
 * A time whose key is not that of today's kernel is not used (compiler/pick/time_key.c), also where an edit changed no
 * instruction. Which machine code a kernel has is known to compilers: one that was built from the templates as they
 * were, which OLD_ATLASC names, and the one next to this command. Each compiles the kernels in question (`atlasc times
 * --machine-code`), which needs no GPU: `atlas` knows no NVRTC, and `atlasc` writes no file of times. A time gets the
 * new key if the old compiler says that it was valid, and both make the same code and the same launch; a tunable that
 * is new in the template is written with the first of its values. The other times stay as they are.
 */
#include "artifacts/tuning.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/tune/tune.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Rekey {
	const Args *args;
	Tuning times;     /* the file */
	Tuning asked;     /* those that machine code decides about; its strings are of `times` */
	int *of;          /* [asked.n_times] index in times.times */
	json_t *lists[4]; /* what the compilers say: of times and of asked, the new one's first */
	char path[32];    /* of asked, for them */
} Rekey;

typedef enum List { NEW_STATE, OLD_STATE, NEW_CODE, OLD_CODE } List;

/* All that the child writes to stdout; NULL without memory. */
static char *read_all(int fd, size_t *n)
{
	char *text = NULL;
	*n = 0;
	for (size_t room = 0;;) {
		if (*n == room) {
			char *more = realloc(text, room = 2 * room + (1 << 16));
			if (!more)
				return free(text), NULL;
			text = more;
		}
		ssize_t got = read(fd, text + *n, room - *n);
		if (got == 0 || (got < 0 && errno != EINTR))
			return text;
		*n += got > 0 ? (size_t)got : 0;
	}
}

/* Runs a compiler; its list of the times in a file. */
static int ask(const Rekey *r, const char *compiler, const char *file, bool with_code, json_t **list)
{
	const char *words[] = {compiler, "times", file, "--json", with_code ? "--machine-code" : NULL, NULL};
	int ends[2], status;
	if (access(compiler, X_OK) != 0)
		return cli_say(r->args, EXIT_ENVIRONMENT, "%s cannot be started: %s", compiler, strerror(errno));
	fflush(stdout);
	if (pipe(ends) != 0)
		return cli_say(r->args, EXIT_ENVIRONMENT, "%s cannot be started: %s", compiler, strerror(errno));
	pid_t child = fork();
	if (child == 0) {
		sigset_t none;
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		execv(compiler, (char *const *)(uintptr_t)words);
		_exit(EXIT_ENVIRONMENT);
	}
	close(ends[1]);
	size_t n = 0;
	char *text = child > 0 ? read_all(ends[0], &n) : NULL;
	close(ends[0]);
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		continue;
	json_t *all = text && child > 0 ? json_loadb(text, n, 0, NULL) : NULL;
	free(text);
	int code = child < 0 ? EXIT_ENVIRONMENT : WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_INTERNAL;
	*list = json_incref(json_object_get(json_array_get(json_object_get(all, "files"), 0), "times"));
	json_decref(all);
	if (code == 0 && !json_is_array(*list))
		code = EXIT_BAD_INPUT;
	return code == 0 ? 0 : cli_say(r->args, code, "%s lists no times of %s: exit code %d", compiler, r->args->plan,
		code);
}

static const char *text_of(const json_t *list, int i, const char *key)
{
	return json_string_value(json_object_get(json_array_get(list, (size_t)i), key));
}

static bool is_current(const json_t *list, int i)
{
	return json_is_true(json_object_get(json_array_get(list, (size_t)i), "is_current"));
}

/* Do two lists have the same text there, and any? */
static bool agree(const json_t *a, const json_t *b, int i, const char *key)
{
	const char *x = text_of(a, i, key), *y = text_of(b, i, key);
	return x && y && strcmp(x, y) == 0;
}

/* Both list the file's times in its order, which is sorted. */
static bool lists_all(const Tuning *t, const json_t *list)
{
	bool is_same = (int)json_array_size(list) == t->n_times;
	for (int i = 0; is_same && i < t->n_times; i++) {
		const char *name = text_of(list, i, "template"), *constants = text_of(list, i, "constants"),
			*tunables = text_of(list, i, "tunables");
		is_same = name && constants && tunables && strcmp(name, t->times[i].tmpl) == 0 &&
			strcmp(constants, t->times[i].constants) == 0 && strcmp(tunables, t->times[i].tunables) == 0;
	}
	return is_same;
}

static void write_times(const void *what, FILE *out) { tuning_print(what, out); }

/* In memory that compilers read by its descriptor. */
static int write_asked(Rekey *r, int fd)
{
	char *text = NULL;
	size_t n = 0;
	FILE *file = open_memstream(&text, &n);
	if (file)
		tuning_print(&r->asked, file);
	bool good = file && fclose(file) == 0 && write(fd, text, n) == (ssize_t)n;
	free(text);
	snprintf(r->path, sizeof r->path, "/proc/self/fd/%d", fd);
	return good ? 0 : cli_say(r->args, EXIT_ENVIRONMENT, "no memory for %d times", r->asked.n_times);
}

/* Those that the old compiler calls valid and the new one does not, with the launch as it was: what is left to ask is
 * the machine code. */
static int choose(Rekey *r, int fd)
{
	const int n = r->times.n_times;
	r->asked = r->times;
	r->asked.text = NULL;
	r->asked.n_times = 0;
	r->asked.times = calloc((size_t)n + 1, sizeof *r->asked.times);
	r->of = calloc((size_t)n + 1, sizeof *r->of);
	if (!r->asked.times || !r->of)
		return cli_say(r->args, EXIT_ENVIRONMENT, "no memory for %d times", n);
	for (int i = 0; i < n; i++)
		if (is_current(r->lists[OLD_STATE], i) && !is_current(r->lists[NEW_STATE], i) &&
			agree(r->lists[OLD_STATE], r->lists[NEW_STATE], i, "launch")) {
			r->of[r->asked.n_times] = i;
			r->asked.times[r->asked.n_times++] = r->times.times[i];
		}
	return write_asked(r, fd);
}

static bool take_key(const char *digits, uint8_t key[TUNING_KEY_BYTES])
{
	bool good = digits && strlen(digits) == 2 * TUNING_KEY_BYTES;
	for (int i = 0; good && i < TUNING_KEY_BYTES; i++)
		good = sscanf(digits + 2 * i, "%2hhx", &key[i]) == 1;
	return good;
}

/* Names of templates with times of which `wanted` says so, each once. */
static void print_names(const Rekey *r, const char *what, const bool *wanted)
{
	const char *before = "";
	int n = 0;
	for (int i = 0; i < r->times.n_times; i++)
		n += wanted[i];
	fprintf(stderr, "%d times %s%s", n, what, n ? ":" : "");
	for (int i = 0; i < r->times.n_times; i++)
		if (wanted[i] && strcmp(before, r->times.times[i].tmpl) != 0)
			fprintf(stderr, " %s", before = r->times.times[i].tmpl);
	fputc('\n', stderr);
}

static int carry(Rekey *r)
{
	const int n = r->times.n_times;
	bool *is_kept = calloc(2 * (size_t)n + 1, sizeof *is_kept), *is_left = is_kept ? is_kept + n : NULL;
	if (!is_kept)
		return cli_say(r->args, EXIT_ENVIRONMENT, "no memory for %d times", n);
	for (int i = 0; i < n; i++)
		is_left[i] = !is_current(r->lists[NEW_STATE], i);
	for (int k = 0; k < r->asked.n_times; k++) {
		const char *tunables = text_of(r->lists[NEW_CODE], k, "tunables_today");
		TunedTime *time = &r->times.times[r->of[k]];
		if (tunables && agree(r->lists[NEW_CODE], r->lists[OLD_CODE], k, "machine_code") &&
			take_key(text_of(r->lists[NEW_CODE], k, "key"), time->key)) {
			time->tunables = tunables;
			is_kept[r->of[k]] = true;
			is_left[r->of[k]] = false;
		}
	}
	if (!r->args->quiet) {
		print_names(r, "kept: their kernels have the machine code that they had", is_kept);
		print_names(r, "still of other kernels than today's", is_left);
	}
	free(is_kept);
	int twice;
	if (!tuning_sort(&r->times, &twice))
		return cli_say(r->args, EXIT_BAD_INPUT, "%s has two times of one kernel", r->args->plan);
	return cli_write_file(r->args, r->args->output ? r->args->output : r->args->plan, write_times, &r->times);
}

static int read_file(Rekey *r)
{
	TuningFault fault;
	char *text;
	size_t n;
	int code = cli_read_file(r->args, r->args->plan, &text, &n);
	if (code)
		return code;
	if (!tuning_read(text, n, &r->times, &fault))
		code = cli_say_at(r->args, EXIT_BAD_INPUT, r->args->plan, fault.line, fault.col, fault.text);
	free(text);
	return code;
}

static int rekey(Rekey *r, int fd)
{
	char compiler[CLI_PROGRAM_BYTES];
	const char *const compilers[2] = {compiler, r->args->rekey};
	int code = cli_check_output(r->args, r->args->output ? r->args->output : r->args->plan);
	if (!code)
		code = read_file(r);
	if (!code)
		code = cli_find_compiler(r->args, compiler);
	for (int i = 0; i < 2 && !code; i++) {
		code = ask(r, compilers[i], r->args->plan, false, &r->lists[NEW_STATE + i]);
		if (!code && !lists_all(&r->times, r->lists[NEW_STATE + i]))
			code = cli_say(r->args, EXIT_BAD_INPUT, "%s lists other times than %s has", compilers[i], r->args->plan);
	}
	if (!code)
		code = choose(r, fd);
	for (int i = 0; i < 2 && !code; i++) {
		if (cli_interrupted())
			return EXIT_INTERRUPTED;
		code = ask(r, compilers[i], r->path, true, &r->lists[NEW_CODE + i]);
		if (!code && !lists_all(&r->asked, r->lists[NEW_CODE + i]))
			code = cli_say(r->args, EXIT_BAD_INPUT, "%s lists other times than it was asked for", compilers[i]);
	}
	return code ? code : carry(r);
}

int tune_rekey(const Args *args)
{
	Rekey r = {.args = args};
	const int fd = memfd_create("times", 0); /* compilers inherit it */
	if (fd < 0)
		return cli_say(args, EXIT_ENVIRONMENT, "no memory for the times: %s", strerror(errno));
	int code = rekey(&r, fd);
	close(fd);
	for (size_t i = 0; i < sizeof r.lists / sizeof r.lists[0]; i++)
		json_decref(r.lists[i]);
	free(r.asked.times);
	free(r.of);
	tuning_free(&r.times);
	return code;
}
