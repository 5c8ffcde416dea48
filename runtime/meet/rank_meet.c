/* rank_meet.c - who comes says who it is, and gets the descriptors of what the ranks share: see rank_meet.h.
 *
 * A greeting and its answer are records of a fixed size. A link ends with the process at its other end, which both
 * sides notice (group_link).
 */
#include "runtime/meet/greeting.h"
#include "artifacts/seconds.h"
#include "runtime/device.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	TURN_MS = 50,
	STALE_MS = 1000, /* a socket that is refused so long was left by an earlier run; rank 0 has just made another */
};

static int64_t now_ms(void) { return (int64_t)(seconds_now() * 1e3); }

static void pause_ms(int ms) { nanosleep(&(struct timespec){0, ms * 1000000L}, NULL); }

static bool address_of(const char *path, struct sockaddr_un *at, AtlasError *error)
{
	*at = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) < sizeof at->sun_path - 8) {
		memcpy(at->sun_path, path, strlen(path) + 1);
		return true;
	}
	error_set(error, ATLAS_ARGUMENT, "--rendezvous %s: longer than the name of a socket may be", path);
	return false;
}

static AtlasStatus stale(const char *path, AtlasError *error)
{
	return error_set(error, ATLAS_RANK_MISMATCH, "--rendezvous %s: an earlier run has left this file: "
		"remove it", path);
}

/* Rank 0 ---------------------------------------------------------------------------------------------------- */

/* Listens at `path`, which must be free; -1 with an error. */
static int listen_at(const char *path, AtlasError *error)
{
	struct sockaddr_un at;
	if (!address_of(path, &at, error))
		return -1;
	const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	const mode_t before = umask(0177);
	const bool is_bound = s >= 0 && bind(s, (struct sockaddr *)&at, sizeof at) == 0;
	const int why = errno;
	umask(before);
	if (is_bound && listen(s, PLAN_MAX_RANKS) == 0)
		return s;
	if (is_bound || why != EADDRINUSE) {
		error_set(error, ATLAS_IO, "--rendezvous %s: %s", path, strerror(is_bound ? errno : why));
	} else {
		const int other = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (other >= 0 && connect(other, (struct sockaddr *)&at, sizeof at) == 0)
			error_set(error, ATLAS_RANK_MISMATCH, "--rendezvous %s: another rank 0 listens at it", path);
		else
			stale(path, error);
		close(other);
	}
	close(s);
	return -1;
}

static bool send_answer(int to, const Answer *answer, const int *fds, int n)
{
	union { char bytes[CMSG_SPACE(sizeof(int) * GROUP_FDS)]; struct cmsghdr align; } control = {{0}};
	struct msghdr m = {.msg_iov = &(struct iovec){(void *)(uintptr_t)answer, sizeof *answer}, .msg_iovlen = 1};
	if (n) {
		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n);
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)n);
	}
	return sendmsg(to, &m, MSG_NOSIGNAL) == (ssize_t)sizeof *answer;
}

Greeting meet_greeting(const MeetSeat *seat)
{
	Greeting g = {.magic = MEET_MAGIC, .layout = MEET_LAYOUT, .n = seat->n, .rank = seat->rank};
	group_build(g.build);
	memcpy(g.options, seat->options, sizeof g.options);
	return g;
}

/* The first option in which they differ; MEET_OPTIONS = none. */
static int other_option(Greeting *g, const MeetSeat *first)
{
	int i = 0;
	for (int k = 0; k < MEET_OPTIONS; k++)
		g->options[k][sizeof g->options[k] - 1] = 0;
	while (i < MEET_OPTIONS && strcmp(g->options[i], first->options[i]) == 0)
		i++;
	return i;
}

int meet_judge(Greeting *g, const MeetSeat *first, const int *links, AtlasError *error)
{
	const int n = first->n, other = other_option(g, first);
	const Greeting own = meet_greeting(first);
	if (g->layout != MEET_LAYOUT || memcmp(g->build, own.build, sizeof own.build) != 0)
		error_set(error, ATLAS_RANK_MISMATCH, "rank %d has another build of atlas than rank 0", g->rank);
	else if (g->n != n)
		error_set(error, ATLAS_RANK_MISMATCH, "rank %d was started for %d ranks, rank 0 for %d", g->rank, g->n, n);
	else if (g->rank < 1 || g->rank >= n)
		error_set(error, ATLAS_RANK_MISMATCH, "a process is rank %d of %d", g->rank, n);
	else if (links[g->rank])
		error_set(error, ATLAS_RANK_MISMATCH, "two processes are rank %d", g->rank);
	else if (other < MEET_OPTIONS)
		error_set(error, ATLAS_RANK_MISMATCH, "rank %d was started with %s, rank 0 with %s", g->rank, g->options[other],
			first->options[other]);
	else
		return g->rank;
	return -1;
}

/* Who comes: its rank, or -1 with what is wrong with it; -2: it is none of us, and nothing is said. */
static int greet(int from, const MeetSeat *first, const int *links, AtlasError *error)
{
	Greeting g;
	struct ucred who;
	socklen_t size = sizeof who;
	struct pollfd p = {.fd = from, .events = POLLIN};
	if (getsockopt(from, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != geteuid() ||
		poll(&p, 1, MEET_WORD_MS) != 1 || recv(from, &g, sizeof g, MSG_DONTWAIT) != (ssize_t)sizeof g ||
		g.magic != MEET_MAGIC)
		return -2;
	return meet_judge(&g, first, links, error);
}

static void say_to(int link, const AtlasError *error)
{
	Answer a = {.magic = MEET_MAGIC, .status = (int)error->status};
	snprintf(a.text, sizeof a.text, "%s", error->text);
	send_answer(link, &a, NULL, 0);
}

int meet_missing(int n, const int *links)
{
	int r = 1;
	while (r < n && links[r])
		r++;
	return r;
}

/* Links to all others; false with what went wrong, which those that came know too. */
static bool gather(int s, const MeetSeat *first, int within_ms, int *links, AtlasError *error)
{
	const int n = first->n;
	int64_t until = now_ms() + within_ms;
	bool good = true;
	while (meet_missing(n, links) < n) {
		const int64_t left = until - now_ms();
		struct pollfd p = {.fd = s, .events = POLLIN};
		if (left <= 0)
			break;
		if (poll(&p, 1, (int)left) != 1)
			continue;
		const int from = accept4(s, NULL, NULL, SOCK_CLOEXEC);
		AtlasError own = {0};
		const int rank = from < 0 ? -2 : greet(from, first, links, &own);
		if (rank > 0) {
			links[rank] = from;
			continue;
		}
		if (rank == -1 && good) { /* those that come now hear it too */
			good = false;
			*error = own;
			until = now_ms() + MEET_WORD_MS / 2;
		}
		if (rank == -1)
			say_to(from, error);
		if (from >= 0)
			close(from);
	}
	if (good && meet_missing(n, links) < n) {
		error_set(error, ATLAS_RANK_LOST, "rank %d has not come within %d seconds", meet_missing(n, links),
			within_ms / 1000);
		good = false;
	}
	return good;
}

static RankGroup *meet_others(const char *path, const MeetSeat *seat, int within_ms, AtlasError *error)
{
	const int n = seat->n;
	int links[PLAN_MAX_RANKS] = {0};
	const int s = listen_at(path, error);
	if (s < 0)
		return NULL;
	bool good = gather(s, seat, within_ms, links, error);
	unlink(path);
	close(s);
	RankGroup *g = good ? group_begin(n, error) : NULL;
	for (int r = 1; r < n; r++) {
		int fds[GROUP_FDS];
		if (!links[r])
			continue;
		if (!g) {
			say_to(links[r], error);
			close(links[r]);
			continue;
		}
		const int n_fds = group_share(g, r, fds);
		send_answer(links[r], &(Answer){.magic = MEET_MAGIC}, fds, n_fds); /* else it is lost at once */
		group_link(g, r, links[r]);
	}
	return g;
}

/* The others -------------------------------------------------------------------------------------------------- */

static int connect_to(const char *path, int within_ms, AtlasError *error)
{
	struct sockaddr_un at;
	if (!address_of(path, &at, error))
		return -1;
	int64_t refused = 0; /* since when */
	for (const int64_t until = now_ms() + within_ms;; pause_ms(TURN_MS)) {
		const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (s >= 0 && connect(s, (struct sockaddr *)&at, sizeof at) == 0)
			return s;
		const int why = errno;
		close(s);
		refused = why != ECONNREFUSED ? 0 : refused ? refused : now_ms();
		if (refused && now_ms() - refused >= STALE_MS) {
			stale(path, error);
			return -1;
		}
		if (refused)
			continue;
		if (why != ENOENT || now_ms() >= until) {
			error_set(error, why == ENOENT ? ATLAS_RANK_LOST : ATLAS_IO, "--rendezvous %s: %s", path,
				why == ENOENT ? "rank 0 has not come" : strerror(why));
			return -1;
		}
	}
}

/* What rank 0 says; how many descriptors came with it, -1: nothing, or nothing of ours. */
static int hear(int from, int within_ms, Answer *answer, int fds[GROUP_FDS])
{
	union { char bytes[CMSG_SPACE(sizeof(int) * GROUP_FDS)]; struct cmsghdr align; } control;
	struct msghdr m = {.msg_iov = &(struct iovec){answer, sizeof *answer}, .msg_iovlen = 1,
		.msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
	struct pollfd p = {.fd = from, .events = POLLIN};
	int n = 0;
	if (poll(&p, 1, within_ms) != 1 || recvmsg(from, &m, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *answer ||
		answer->magic != MEET_MAGIC)
		return -1;
	answer->text[sizeof answer->text - 1] = 0;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), sizeof(int) * (size_t)n);
	}
	return n;
}

static RankGroup *meet_first(const char *path, const MeetSeat *seat, int within_ms, AtlasError *error)
{
	const Greeting g = meet_greeting(seat);
	const int n = seat->n;
	Answer answer = {0};
	int fds[GROUP_FDS];
	const int s = connect_to(path, within_ms, error);
	if (s < 0)
		return NULL;
	RankGroup *group = NULL;
	const int got = send(s, &g, sizeof g, MSG_NOSIGNAL) == (ssize_t)sizeof g ? hear(s, within_ms, &answer, fds) : -1;
	if (got < 0)
		error_set(error, ATLAS_RANK_LOST, "rank 0 was lost: it has not said who is there");
	else if (answer.status)
		error_set(error, (AtlasStatus)answer.status, "%s", answer.text);
	else if (got != n + 1)
		error_set(error, ATLAS_RANK_MISMATCH, "rank 0 has given what is not for %d ranks", n);
	else
		group = group_from(n, seat->rank, fds, error);
	for (int i = 0; !group && i < got; i++)
		close(fds[i]);
	if (group)
		group_link(group, 0, s);
	else
		close(s);
	return group;
}

RankGroup *group_meet(const char *path, const MeetSeat *seat, int within_ms, AtlasError *error)
{
	return seat->rank ? meet_first(path, seat, within_ms, error) : meet_others(path, seat, within_ms, error);
}
