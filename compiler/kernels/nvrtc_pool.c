/* nvrtc_pool.c - NVRTC in processes of its own.
 *
 * NVRTC aborts when memory runs out and may crash or never end at a kernel; none of that may end the compile. So
 * kernels are compiled in children of this process: each has a socket, reads the index of a job, whose source it has
 * from the fork, and writes back the cubin or NVRTC's words. What it writes to stderr goes into a file without a name;
 * its end is shown when the child dies. The job that it had fails then, and a new child goes on with the next.
 */
#include "compiler/kernels/kernels.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PROCESSES = 32, MAX_RESULT_BYTES = 1 << 28, WORDS_BYTES = 256, VERSION_BYTES = 32, LOG_BYTES = 1024 };

typedef struct Child {
	pid_t pid;       /* 0 = none */
	int socket;      /* to it */
	int words;       /* what it writes to stderr */
	int job;         /* -1 = none */
	int64_t until;   /* milliseconds; of the job */
} Child;

typedef struct Pool {
	CompileJob *jobs;
	int n, next, done, seconds;
	Child children[MAX_PROCESSES];
	int n_children;
} Pool;

typedef struct Head { int64_t bytes; int32_t is_good; } Head; /* of a result */

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool send_all(int fd, const void *bytes, size_t n)
{
	for (const uint8_t *p = bytes; n;) {
		const ssize_t done = send(fd, p, n, MSG_NOSIGNAL);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false;
		p += done;
		n -= (size_t)done;
	}
	return true;
}

static bool receive_all(int fd, void *bytes, size_t n)
{
	for (uint8_t *p = bytes; n;) {
		const ssize_t done = recv(fd, p, n, 0);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false;
		p += done;
		n -= (size_t)done;
	}
	return true;
}

/* The child ------------------------------------------------------------------------------------------ */

/* A job without a source asks for the version. */
static bool make(const KernelSource *source, Cubin *out, char **log)
{
	char version[VERSION_BYTES], why[LOG_BYTES];
	if (source)
		return nvrtc_compile(source, out, log);
	*out = (Cubin){0};
	*log = NULL;
	if (!nvrtc_version(version, sizeof version, why, sizeof why)) {
		*log = strdup(why);
		return false;
	}
	out->bytes = (uint8_t *)strdup(version);
	out->n = strlen(version);
	return out->bytes != NULL;
}

static _Noreturn void serve(const Pool *pool, int fd)
{
	int job;
	while (receive_all(fd, &job, sizeof job)) {
		Cubin cubin;
		char *log;
		const bool is_good = make(pool->jobs[job].source, &cubin, &log);
		const void *bytes = is_good ? (void *)cubin.bytes : log;
		const Head head = {is_good ? (int64_t)cubin.n : log ? (int64_t)strlen(log) : 0, is_good};
		if (!send_all(fd, &head, sizeof head) || !send_all(fd, bytes, (size_t)head.bytes))
			break;
		free(cubin.bytes);
		free(log);
	}
	_exit(EXIT_OK);
}

static bool start(Pool *pool, Child *child)
{
	int ends[2];
	const pid_t parent = getpid();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return false;
	const int words = memfd_create("nvrtc", MFD_CLOEXEC);
	fflush(NULL);
	const pid_t pid = words < 0 ? -1 : fork();
	if (pid == 0) {
		const struct rlimit none = {0, 0};
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(EXIT_INTERNAL);
		setrlimit(RLIMIT_CORE, &none);
		dup2(words, STDOUT_FILENO);
		dup2(words, STDERR_FILENO);
		close(ends[0]);
		for (int i = 0; i < pool->n_children; i++)
			if (pool->children[i].pid)
				close(pool->children[i].socket);
		serve(pool, ends[1]);
	}
	const int error = errno;
	close(ends[1]);
	if (pid > 0) {
		*child = (Child){pid, ends[0], words, -1, 0};
		return true;
	}
	close(ends[0]);
	if (words >= 0)
		close(words);
	errno = error;
	return false;
}

/* This process ---------------------------------------------------------------------------------------- */

/* The last words of a child on one line, "" = none. */
static void last_words(int fd, char text[WORDS_BYTES])
{
	const off_t end = lseek(fd, 0, SEEK_END);
	const off_t from = end > WORDS_BYTES - 1 ? end - (WORDS_BYTES - 1) : 0;
	ssize_t n = end > 0 ? pread(fd, text, WORDS_BYTES - 1, from) : 0;
	n = n < 0 ? 0 : n;
	while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
		n--;
	text[n] = 0;
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < ' ')
			*p = ' ';
}

/* Waits for the child, which has ended or is ended here; says how in *why (malloc) if there is one. */
static void bury(Child *child, bool is_late, int seconds, char **why)
{
	char words[WORDS_BYTES], text[2 * WORDS_BYTES];
	int status = 0;
	close(child->socket);
	if (is_late)
		kill(child->pid, SIGKILL);
	while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
		continue;
	last_words(child->words, words);
	close(child->words);
	child->pid = 0;
	if (!why)
		return;
	int n;
	if (is_late)
		n = snprintf(text, sizeof text, "took more than %d seconds", seconds);
	else if (WIFSIGNALED(status))
		n = snprintf(text, sizeof text, "was ended by signal %d (%s)%s", WTERMSIG(status), strsignal(WTERMSIG(status)),
			WTERMSIG(status) == SIGKILL ? ", as a system without memory does" : "");
	else
		n = snprintf(text, sizeof text, "ended its process with exit code %d", WEXITSTATUS(status));
	if (words[0])
		snprintf(text + n, sizeof text - (size_t)n, ": %s", words);
	*why = strdup(text);
}

/* The result of its job, or false: it died or writes nonsense. */
static bool take_result(Child *child, CompileJob *job)
{
	Head head;
	if (!receive_all(child->socket, &head, sizeof head) || head.bytes < 0 || head.bytes > MAX_RESULT_BYTES)
		return false;
	uint8_t *bytes = malloc((size_t)head.bytes + 1);
	if (!bytes || !receive_all(child->socket, bytes, (size_t)head.bytes)) {
		free(bytes);
		return false;
	}
	bytes[head.bytes] = 0;
	if (head.is_good)
		job->cubin = (Cubin){bytes, (size_t)head.bytes};
	else
		job->log = (char *)bytes;
	return true;
}

/* Gives the child its next job; starts it where there is none. False: no child can be had, and the job failed. */
static bool hand_out(Pool *pool, Child *child)
{
	if (pool->next == pool->n)
		return false;
	const int job = pool->next++;
	if (!child->pid && !start(pool, child)) {
		char text[WORDS_BYTES];
		snprintf(text, sizeof text, "cannot be started in a separate process: %s", strerror(errno));
		pool->jobs[job].ended = strdup(text);
		child->job = job;
		return false;
	}
	child->job = job;
	child->until = now_ms() + 1000LL * pool->seconds;
	send_all(child->socket, &job, sizeof job); /* a child that is dead is seen when its answer is read */
	return true;
}

typedef struct Report { void (*done)(void *ctx, int job); void *ctx; } Report;

static void finish(Pool *pool, Child *child, const Report *report)
{
	const int job = child->job;
	child->job = -1;
	pool->done++;
	if (report->done)
		report->done(report->ctx, job);
}

static void feed(Pool *pool, Child *child, const Report *report)
{
	while (pool->next < pool->n && !hand_out(pool, child))
		finish(pool, child, report);
}

void nvrtc_pool_run(CompileJob *jobs, int n, int processes, int seconds, void (*done)(void *ctx, int job), void *ctx)
{
	Pool pool = {.jobs = jobs, .n = n, .seconds = seconds};
	const Report report = {done, ctx};
	const int most = processes < 1 ? 1 : processes > MAX_PROCESSES ? MAX_PROCESSES : processes;
	for (; pool.n_children < most && pool.next < n; pool.n_children++) {
		pool.children[pool.n_children] = (Child){.job = -1};
		feed(&pool, &pool.children[pool.n_children], &report);
	}
	while (pool.done < n) {
		struct pollfd fds[MAX_PROCESSES];
		int64_t first = INT64_MAX;
		for (int i = 0; i < pool.n_children; i++) {
			Child *c = &pool.children[i];
			fds[i] = (struct pollfd){.fd = c->job >= 0 ? c->socket : -1, .events = POLLIN};
			if (c->job >= 0 && c->until < first)
				first = c->until;
		}
		const int64_t left = first - now_ms();
		const int ready = poll(fds, (nfds_t)pool.n_children, left < 0 ? 0 : left > 60000 ? 60000 : (int)left);
		for (int i = 0; i < pool.n_children; i++) {
			Child *c = &pool.children[i];
			const bool has_answer = c->job >= 0 && ready > 0 && fds[i].revents;
			const bool is_late = c->job >= 0 && !has_answer && now_ms() > c->until;
			if (!has_answer && !is_late)
				continue;
			if (is_late || !take_result(c, &jobs[c->job]))
				bury(c, is_late, seconds, &jobs[c->job].ended);
			finish(&pool, c, &report);
			feed(&pool, c, &report);
		}
	}
	for (int i = 0; i < pool.n_children; i++)
		if (pool.children[i].pid)
			bury(&pool.children[i], false, seconds, NULL);
}

bool nvrtc_version_apart(char *text, size_t bytes, char *why, size_t why_bytes)
{
	CompileJob job = {.source = NULL};
	nvrtc_pool_run(&job, 1, 1, NVRTC_SECONDS, NULL, NULL);
	if (job.cubin.bytes)
		snprintf(text, bytes, "%s", (char *)job.cubin.bytes);
	else if (job.ended)
		snprintf(why, why_bytes, "it %s", job.ended);
	else
		snprintf(why, why_bytes, "%s", job.log ? job.log : "no memory");
	const bool ok = job.cubin.bytes != NULL;
	free(job.cubin.bytes);
	free(job.log);
	free(job.ended);
	return ok;
}
