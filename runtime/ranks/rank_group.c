/* rank_group.c - shared memory, sockets and a watching thread: see rank_group.h.
 *
 * What is shared is a memory file that fork hands on, or descriptors (rank_meet.c), with another one for records, whose
 * size is known later. On several hosts each process has its own, and messages keep them alike (rank_shared.h). A
 * waiting rank spins for a while, since steps are short, and then sleeps in little pieces.
 */
#include "runtime/ranks/rank_shared.h"
#include "artifacts/seconds.h"
#include "runtime/device.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	BEAT_MS = 100,
	LATE_MS = 3000,  /* without a beat, or with a record that is not begun: the rank is lost */
	GRACE_MS = 1500, /* after a loss: who has not left by then is ended */
	ANSWER_MS = 500, /* of rank 0, to one that fails */
	LEAVE_MS = 1000, /* until who has not ended with rank 0 is ended */
	SPINS = 20000,
};

static int64_t now_ms(void) { return (int64_t)(seconds_now() * 1e3); }

static void sleep_ms(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL); }

/* NULL: what is shared cannot be mapped. Takes the files. */
static RankGroup *group_of(int n, int shared, int memory)
{
	RankGroup *g = calloc(1, sizeof *g);
	struct stat found;
	if (!g || shared < 0 || memory < 0 || fstat(shared, &found) != 0 || found.st_size != (off_t)sizeof(Shared)) {
		free(g);
		return NULL;
	}
	g->s = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
	if (g->s == MAP_FAILED) {
		free(g);
		return NULL;
	}
	g->n = n;
	g->shared = shared;
	g->memory = memory;
	g->parent = getpid();
	return g;
}

RankGroup *group_begin(int n, AtlasError *error)
{
	const int shared = memfd_create("atlas-group", MFD_CLOEXEC), memory = memfd_create("atlas-ranks", MFD_CLOEXEC);
	RankGroup *g = shared < 0 || ftruncate(shared, sizeof(Shared)) != 0 ? NULL : group_of(n, shared, memory);
	bool good = g;
	for (int i = 0; good && i < n; i++)
		for (int j = i + 1; good && j < n; j++) {
			int ends[2];
			good = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0;
			g->sockets[i][j] = good ? ends[0] : 0;
			g->sockets[j][i] = good ? ends[1] : 0;
		}
	if (!good) {
		error_set(error, ATLAS_IO, "%d ranks have no memory or sockets to share: %s", n, strerror(errno));
		free(g); /* the command ends */
		return NULL;
	}
	return g;
}

RankGroup *group_of_hosts(int n, GroupLinks *hosts, AtlasError *error)
{
	const int shared = memfd_create("atlas-group", MFD_CLOEXEC), memory = memfd_create("atlas-ranks", MFD_CLOEXEC);
	RankGroup *g = shared < 0 || ftruncate(shared, sizeof(Shared)) != 0 ? NULL : group_of(n, shared, memory);
	if (g)
		g->hosts = hosts;
	else
		error_set(error, ATLAS_IO, "a rank has no memory for what it shares: %s", strerror(errno));
	return g;
}

bool group_spans_hosts(const RankGroup *g) { return g->hosts; }

int group_share(const RankGroup *g, int rank, int fds[GROUP_FDS])
{
	int n = 0;
	fds[n++] = g->shared;
	fds[n++] = g->memory;
	for (int r = 0; r < g->n; r++)
		if (r != rank)
			fds[n++] = g->sockets[rank][r];
	return n;
}

RankGroup *group_from(int n, int rank, const int *fds, AtlasError *error)
{
	RankGroup *g = group_of(n, fds[0], fds[1]);
	if (!g) {
		error_set(error, ATLAS_IO, "what %d ranks share cannot be mapped: %s", n, strerror(errno));
		return NULL;
	}
	for (int r = 0, k = 2; r < n; r++)
		if (r != rank)
			g->sockets[rank][r] = fds[k++];
	return g;
}

void group_link(RankGroup *g, int rank, int socket) { g->links[rank] = socket; }

int group_ranks(const RankGroup *g) { return g->n; }
int group_rank(const RankGroup *g) { return g->rank; }

/* Failures ------------------------------------------------------------------------------------------------ */

void group_wake(RankGroup *g) { syscall(SYS_futex, &g->s->posted, FUTEX_WAKE, PLAN_MAX_RANKS, NULL, NULL, 0); }

bool group_lose_here(RankGroup *g, int rank, AtlasStatus status, const char *text)
{
	uint32_t none = 0;
	if (!atomic_compare_exchange_strong(&g->s->lost, &none, (uint32_t)rank + 1))
		return false;
	snprintf(g->s->text, sizeof g->s->text, "%s", text);
	atomic_store(&g->s->status, (int)status);
	atomic_store(&g->s->has_text, 1);
	group_wake(g);
	return true;
}

static void lose(RankGroup *g, int rank, AtlasStatus status, const char *text)
{
	if (g->hosts)
		g->hosts->lose(g->hosts, rank, status, text);
	else
		group_lose_here(g, rank, status, text);
}

/* On several hosts rank 0 says what the group's loss is, or this one does for itself. */
void group_fail(RankGroup *g, const AtlasError *error)
{
	lose(g, g->rank, error->status, error->text);
	for (int ms = 0; g->hosts && ms < ANSWER_MS && !atomic_load(&g->s->lost); ms++)
		sleep_ms(1);
	group_lose_here(g, g->rank, error->status, error->text);
}

AtlasStatus group_check(const RankGroup *g, AtlasError *error)
{
	const uint32_t lost = atomic_load(&g->s->lost);
	if (!lost)
		return ATLAS_OK;
	for (int i = 0; i < 100 && !atomic_load(&g->s->has_text); i++)
		sleep_ms(1);
	const AtlasStatus status = (AtlasStatus)atomic_load(&g->s->status);
	if ((int)lost - 1 == g->rank || status == ATLAS_RANK_MISMATCH /* whose text is for all */)
		return error_set(error, status, "%s", g->s->text);
	if (atomic_load(&g->s->is_open))
		return error_set(error, ATLAS_RANK_LOST, "rank %d was lost: %s", (int)lost - 1, g->s->text);
	return error_set(error, status, "rank %d: %s", (int)lost - 1, g->s->text);
}

void group_opened(RankGroup *g)
{
	atomic_store(&g->s->is_open, 1);
	if (g->hosts)
		g->hosts->open(g->hosts);
}
bool group_was_lost(const RankGroup *g) { return atomic_load(&g->s->lost) && !atomic_load(&g->is_over); }
void group_be_patient(RankGroup *g) { atomic_store(&g->is_patient, true); }
void group_is_over(RankGroup *g) { atomic_store(&g->is_over, true); }
void group_set_abort(RankGroup *g, volatile uint32_t *word) { atomic_store(&g->abort, word); }

/* The watch ------------------------------------------------------------------------------------------------ */

static void look_at_children(RankGroup *g)
{
	for (int r = 1; r < g->n; r++) {
		int how;
		char text[96];
		if (!g->pids[r] || waitpid(g->pids[r], &how, WNOHANG) != g->pids[r])
			continue;
		g->pids[r] = 0;
		if (WIFSIGNALED(how))
			snprintf(text, sizeof text, "its process was ended by signal %d", WTERMSIG(how));
		else
			snprintf(text, sizeof text, "its process ended with exit code %d", WEXITSTATUS(how));
		lose(g, r, ATLAS_RANK_LOST, text);
	}
}

/* Whose processes were not started by this one. */
static void look_at_links(RankGroup *g)
{
	for (int r = 0; r < g->n; r++) {
		char byte;
		if (!g->links[r] || recv(g->links[r], &byte, 1, MSG_DONTWAIT) != 0)
			continue;
		close(g->links[r]);
		g->links[r] = 0;
		lose(g, r, ATLAS_RANK_LOST, "its process ended");
		if (r == 0)
			_exit(10);
	}
}

/* What a rank has done, and since when no more: to find one that beats but does nothing. */
typedef struct Progress { uint32_t done; int64_t since; } Progress;

/* awake: since when this thread has come round regularly. What it missed before says nothing of the others: all
 * processes may have been paused. */
static void look_at_beats(RankGroup *g, Progress *progress, int64_t awake, int64_t now)
{
	for (int r = 0; r < g->n; r++) {
		const int64_t beat = atomic_load(&g->s->beat[r]);
		const uint32_t done = atomic_load(&g->s->done[r]);
		const bool is_late = r && atomic_load(&g->s->is_open) && done != atomic_load(&g->s->posted);
		if (r != g->rank && beat && now - (beat > awake ? beat : awake) > LATE_MS)
			lose(g, r, ATLAS_RANK_LOST, "nothing was heard of it for 3 seconds");
		if (!is_late || done != progress[r].done || progress[r].since < awake)
			progress[r] = (Progress){done, now};
		else if (g->rank == 0 && !atomic_load(&g->is_patient) && now - progress[r].since > 4 * LATE_MS)
			lose(g, r, ATLAS_RANK_LOST, "it has not gone on for 12 seconds");
	}
}

static void end_the_rest(RankGroup *g)
{
	AtlasError error = {0};
	if (group_check(g, &error) != ATLAS_OK && g->last)
		g->last(g->last_ctx, &error);
	for (int r = 1; r < g->n && g->rank == 0; r++)
		if (g->pids[r])
			kill(g->pids[r], SIGKILL);
	_exit(error.status ? atlas_status_exit_code(error.status) : 10);
}

static void *watch(void *at)
{
	RankGroup *g = at;
	Progress progress[PLAN_MAX_RANKS] = {{0, 0}};
	int64_t lost_at = 0, awake = now_ms(), last = awake;
	while (!atomic_load(&g->stops)) {
		const int64_t now = now_ms();
		atomic_store(&g->s->beat[g->rank], now);
		const bool is_over = atomic_load(&g->is_over);
		if (g->hosts)
			g->hosts->beat(g->hosts);
		if (!is_over)
			look_at_links(g);
		if (g->rank == 0 && !is_over)
			look_at_children(g);
		else if (g->rank && !g->hosts && !g->links[0] && getppid() != g->parent)
			_exit(10);
		awake = now - last > 10 * BEAT_MS ? now : awake;
		last = now;
		if (g->rank || !is_over)
			look_at_beats(g, progress, awake, now);
		if (atomic_load(&g->s->lost)) {
			volatile uint32_t *word = atomic_load(&g->abort);
			if (word)
				*word = 1;
			lost_at = lost_at ? lost_at : now;
			if (now - lost_at > GRACE_MS)
				end_the_rest(g);
		}
		sleep_ms(BEAT_MS);
	}
	return NULL;
}

void group_at_end(RankGroup *g, GroupLastFn *fn, void *ctx)
{
	g->last = fn;
	g->last_ctx = ctx;
}

AtlasStatus group_join(RankGroup *g, int rank, const pid_t *pids, AtlasError *error)
{
	g->rank = rank;
	for (int r = 1; r < g->n && pids; r++)
		g->pids[r] = pids[r];
	for (int i = 0; i < g->n; i++) /* those of others are closed, so that an end is seen */
		for (int j = 0; i != rank && j < g->n; j++)
			if (g->sockets[i][j])
				close(g->sockets[i][j]);
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the threads of the caller */
	bool is_there = !g->hosts || g->hosts->begin(g->hosts, g);
	is_there = is_there && pthread_create(&g->thread, NULL, watch, g) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!is_there)
		return error_set(error, ATLAS_NO_MEMORY, "rank %d has no thread to watch the others", rank);
	g->is_watching = true;
	return ATLAS_OK;
}

void group_leave(RankGroup *g)
{
	if (!g)
		return;
	if (g->rank == 0) /* who has not ended with the session does so now */
		lose(g, 0, ATLAS_RANK_LOST, "it has ended");
	atomic_store(&g->stops, true);
	if (g->is_watching)
		pthread_join(g->thread, NULL);
	if (g->hosts)
		g->hosts->close(g->hosts);
	for (int64_t until = now_ms() + LEAVE_MS; g->rank == 0; sleep_ms(5)) {
		bool is_alone = true;
		for (int r = 1; r < g->n; r++)
			if (g->pids[r] && waitpid(g->pids[r], NULL, WNOHANG) != g->pids[r])
				is_alone = false;
			else
				g->pids[r] = 0;
		for (int r = 1; r < g->n && now_ms() > until; r++)
			if (g->pids[r])
				kill(g->pids[r], SIGKILL);
		if (is_alone)
			break;
	}
	for (int j = 0; j < g->n; j++)
		if (g->sockets[g->rank][j])
			close(g->sockets[g->rank][j]);
	if (g->records)
		munmap(g->records, (size_t)g->mapped_bytes);
	for (int r = 0; r < g->n; r++)
		if (g->links[r])
			close(g->links[r]);
	close(g->memory);
	close(g->shared);
	munmap(g->s, sizeof *g->s);
	free(g);
}

/* Meetings -------------------------------------------------------------------------------------------------- */

void group_arrive(RankGroup *g)
{
	if (atomic_fetch_add(&g->s->arrived, 1) + 1 != (uint32_t)g->n)
		return;
	atomic_store(&g->s->arrived, 0);
	if (g->hosts)
		g->hosts->pass(g->hosts);
	atomic_fetch_add(&g->s->generation, 1);
}

AtlasStatus group_barrier(RankGroup *g, AtlasError *error)
{
	const uint32_t generation = atomic_load(&g->s->generation);
	if (g->hosts && g->rank)
		g->hosts->arrive(g->hosts);
	else
		group_arrive(g);
	while (atomic_load(&g->s->generation) == generation) {
		const AtlasStatus lost = group_check(g, error);
		if (lost != ATLAS_OK)
			return lost;
		sleep_ms(1);
	}
	return group_check(g, error);
}

static const char *difference(const RankFacts *a, const RankFacts *b)
{
	return strcmp(a->build, b->build) != 0 ? "another build of atlas"
		: memcmp(a->plan, b->plan, sizeof a->plan) != 0 ? "another plan"
		: memcmp(a->schedule, b->schedule, sizeof a->schedule) != 0 ? "another schedule of collectives"
		: a->driver != b->driver ? "another CUDA driver" : a->nccl != b->nccl ? "another NCCL"
		: strcmp(a->card, b->card) != 0 ? "another kind of GPU" : NULL;
}

AtlasStatus group_compare(RankGroup *g, const RankFacts *facts, bool shares_card, AtlasError *error)
{
	g->s->facts[g->rank] = *facts;
	const AtlasStatus there = group_barrier(g, error);
	if (there != ATLAS_OK)
		return there;
	for (int r = 1; r < g->n; r++) {
		const char *what = difference(&g->s->facts[0], &g->s->facts[r]);
		if (what)
			return error_set(error, ATLAS_RANK_MISMATCH, "rank %d has %s than rank 0", r, what);
		for (int k = 0; k < r && !shares_card; k++)
			if (memcmp(g->s->facts[r].gpu, g->s->facts[k].gpu, sizeof facts->gpu) == 0)
				return error_set(error, ATLAS_RANK_MISMATCH, "ranks %d and %d have the same GPU", k, r);
	}
	return group_barrier(g, error);
}

AtlasStatus group_say(RankGroup *g, void *bytes, size_t n, AtlasError *error)
{
	if (g->rank == 0)
		memcpy(g->s->said, bytes, n);
	const AtlasStatus s = group_barrier(g, error);
	memcpy(bytes, g->s->said, n);
	return s == ATLAS_OK ? group_barrier(g, error) : s;
}

static bool send_fd(int socket, int fd)
{
	char byte = 1;
	union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {{0}};
	struct msghdr m = {.msg_iov = &(struct iovec){&byte, 1}, .msg_iovlen = 1, .msg_control = control.bytes,
		.msg_controllen = sizeof control.bytes};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	return sendmsg(socket, &m, MSG_NOSIGNAL) == 1;
}

/* -1: it was not to be had. */
static int receive_fd(int socket)
{
	char byte;
	int fd = -1;
	union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
	struct msghdr m = {.msg_iov = &(struct iovec){&byte, 1}, .msg_iovlen = 1, .msg_control = control.bytes,
		.msg_controllen = sizeof control.bytes};
	if (recvmsg(socket, &m, MSG_CMSG_CLOEXEC) != 1)
		return -1;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
	return fd;
}

AtlasStatus group_swap_fds(RankGroup *g, int own, int *fds, AtlasError *error)
{
	const int *sockets = g->sockets[g->rank];
	for (int r = 0; r < g->n; r++)
		if (r != g->rank && !send_fd(sockets[r], own))
			return error_set(error, ATLAS_RANK_LOST, "rank %d cannot be reached: %s", r, strerror(errno));
	for (int r = 0; r < g->n; r++) {
		struct pollfd p = {.fd = sockets[r], .events = POLLIN};
		AtlasStatus lost = ATLAS_OK;
		while (r != g->rank && lost == ATLAS_OK && poll(&p, 1, BEAT_MS) == 0)
			lost = group_check(g, error);
		if (lost != ATLAS_OK)
			return lost;
		fds[r] = r == g->rank ? own : receive_fd(sockets[r]);
		if (fds[r] < 0)
			return error_set(error, ATLAS_RANK_LOST, "rank %d gave no memory", r);
	}
	return ATLAS_OK;
}

/* Records ---------------------------------------------------------------------------------------------------- */

AtlasStatus group_open_ring(RankGroup *g, int64_t bytes, AtlasError *error)
{
	g->record_bytes = ((int64_t)sizeof(RankRecord) + bytes + 63) / 64 * 64;
	g->mapped_bytes = GROUP_RECORDS * g->record_bytes;
	if ((g->rank == 0 || g->hosts) && ftruncate(g->memory, g->mapped_bytes) != 0)
		return error_set(error, ATLAS_IO, "%lld bytes of records of steps: %s", (long long)g->mapped_bytes,
			strerror(errno));
	const AtlasStatus s = group_barrier(g, error);
	if (s != ATLAS_OK)
		return s;
	void *at = mmap(NULL, (size_t)g->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->memory, 0);
	if (at == MAP_FAILED)
		return error_set(error, ATLAS_NO_MEMORY, "no memory for %lld bytes of records", (long long)g->mapped_bytes);
	g->records = at;
	return ATLAS_OK;
}

RankRecord *group_record_at(const RankGroup *g, uint32_t i)
{
	return (RankRecord *)(void *)(g->records + i % GROUP_RECORDS * g->record_bytes);
}

RankRecord *group_next(RankGroup *g)
{
	const uint32_t at = atomic_load(&g->s->posted);
	for (int r = 1; r < g->n; r++)
		for (int spins = 0; at - atomic_load(&g->s->done[r]) >= GROUP_RECORDS; spins++) {
			if (atomic_load(&g->s->lost))
				return NULL;
			if (spins > SPINS)
				sleep_ms(1);
		}
	return atomic_load(&g->s->lost) ? NULL : group_record_at(g, at);
}

void group_post(RankGroup *g)
{
	if (g->hosts)
		g->hosts->post(g->hosts, group_record_at(g, atomic_load(&g->s->posted)));
	atomic_fetch_add(&g->s->posted, 1);
	group_wake(g);
}

const RankRecord *group_take(RankGroup *g)
{
	const uint32_t at = atomic_load(&g->s->done[g->rank]);
	for (int spins = 0; atomic_load(&g->s->posted) == at && spins < SPINS; spins++)
		if (atomic_load(&g->s->lost))
			return NULL;
	if (atomic_load(&g->s->posted) == at)
		syscall(SYS_futex, &g->s->posted, FUTEX_WAIT, at, &(struct timespec){0, BEAT_MS * 1000000}, NULL, 0);
	return atomic_load(&g->s->lost) || atomic_load(&g->s->posted) == at ? NULL : group_record_at(g, at);
}

void group_done(RankGroup *g)
{
	atomic_fetch_add(&g->s->done[g->rank], 1);
	if (g->hosts)
		g->hosts->done(g->hosts);
}
