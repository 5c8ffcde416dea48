/* host_links.c - a group whose ranks are on several hosts: see rank_shared.h.
 *
 * Rank 0 has a connection to each other rank. A thread reads what comes and writes it into the process's own `Shared`,
 * as the others' processes would on one host; messages are sent one at a time on each connection, by any thread. All
 * ranks have the same build (rank_meet.c), so a message is a struct. Each is bounded, and one that is none of ours, or
 * an end, is the loss of the rank that it came from: rank 0 decides what the group's loss is and sends it to all, so
 * that all have the same words.
 */
#include "runtime/meet/host_links.h"
#include "artifacts/seconds.h"
#include "runtime/device.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef enum MessageKind { BEAT, ARRIVE, PASS, OPEN, RECORD, DONE, LOST, MESSAGES } MessageKind;
typedef struct Head { uint32_t kind, bytes; } Head; /* bytes: of what follows */
typedef struct Pass { RankFacts facts[PLAN_MAX_RANKS]; uint8_t said[128]; } Pass;
typedef struct Lost { int32_t rank, status; char text[400]; } Lost;

enum {
	TURN_MS = 50,
	STUCK_MS = 200,  /* a send that does not go on after a loss is given up */
	ANSWER_MS = 500, /* until a rank that says it has failed takes itself for the group's loss */
	LAST_MS = 500,   /* until a connection is closed whose other end has not */
};

typedef struct Link {
	int socket;              /* 0 = none */
	pthread_mutex_t sending;
	atomic_bool is_broken;   /* a message was given up in its middle, or the other end has closed */
	uint8_t *in; size_t have, room;
} Link;

typedef struct HostLinks {
	GroupLinks base;
	RankGroup *group;
	int n;
	Link links[PLAN_MAX_RANKS];
	pthread_t thread;
	bool has_thread;
	atomic_bool stops;
	pthread_mutex_t claiming;
	Lost claim; int64_t claimed; /* not of rank 0: what it has sent of a loss, and when; 0 = nothing */
} HostLinks;

static int64_t now_ms(void) { return (int64_t)(seconds_now() * 1e3); }

/* Sending ----------------------------------------------------------------------------------------------------- */

static bool send_bytes(HostLinks *h, Link *l, const uint8_t *bytes, size_t n)
{
	int64_t until = 0;
	while (n && !atomic_load(&l->is_broken)) {
		const ssize_t sent = send(l->socket, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent > 0) {
			bytes += sent;
			n -= (size_t)sent;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			break;
		const bool is_lost = atomic_load(&h->group->s->lost);
		until = is_lost && !until ? now_ms() + STUCK_MS : until;
		if (is_lost && now_ms() > until)
			break;
		poll(&(struct pollfd){.fd = l->socket, .events = POLLOUT}, 1, TURN_MS);
	}
	if (n)
		atomic_store(&l->is_broken, true);
	return !n;
}

static void send_to(HostLinks *h, int rank, MessageKind kind, const void *bytes, size_t n)
{
	Link *l = &h->links[rank];
	const Head head = {(uint32_t)kind, (uint32_t)n};
	if (!l->socket || atomic_load(&l->is_broken))
		return;
	pthread_mutex_lock(&l->sending);
	if (send_bytes(h, l, (const uint8_t *)&head, sizeof head))
		send_bytes(h, l, bytes, n);
	pthread_mutex_unlock(&l->sending);
}

/* The thread that watches does not wait: what is being sent, or does not go on, says the same or less. */
static void beat_to(HostLinks *h, Link *l)
{
	static const Head head = {BEAT, 0};
	if (!l->socket || atomic_load(&l->is_broken) || pthread_mutex_trylock(&l->sending) != 0)
		return;
	const ssize_t n = send(l->socket, &head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0)
		send_bytes(h, l, (const uint8_t *)&head + n, sizeof head - (size_t)n);
	pthread_mutex_unlock(&l->sending);
}

static void send_all(HostLinks *h, MessageKind kind, const void *bytes, size_t n)
{
	for (int r = 0; r < h->n; r++)
		send_to(h, r, kind, bytes, n);
}

static void beat(GroupLinks *l)
{
	HostLinks *h = (HostLinks *)l;
	for (int r = 0; r < h->n; r++)
		beat_to(h, &h->links[r]);
	pthread_mutex_lock(&h->claiming);
	const bool is_own = h->claimed && now_ms() - h->claimed > ANSWER_MS;
	pthread_mutex_unlock(&h->claiming);
	if (is_own)
		group_lose_here(h->group, h->claim.rank, (AtlasStatus)h->claim.status, h->claim.text);
}

static void arrive(GroupLinks *l)
{
	HostLinks *h = (HostLinks *)l;
	send_all(h, ARRIVE, &h->group->s->facts[h->group->rank], sizeof(RankFacts));
}

static void pass(GroupLinks *l)
{
	HostLinks *h = (HostLinks *)l;
	Pass p;
	memcpy(p.facts, h->group->s->facts, sizeof p.facts);
	memcpy(p.said, h->group->s->said, sizeof p.said);
	send_all(h, PASS, &p, sizeof p);
}

static void open_all(GroupLinks *l) { send_all((HostLinks *)l, OPEN, NULL, 0); }

static void post(GroupLinks *l, const RankRecord *record)
{
	send_all((HostLinks *)l, RECORD, record, sizeof *record + (size_t)record->bytes);
}

static void done(GroupLinks *l)
{
	HostLinks *h = (HostLinks *)l;
	const uint32_t n = atomic_load(&h->group->s->done[h->group->rank]);
	send_all(h, DONE, &n, sizeof n);
}

static void lose(GroupLinks *l, int rank, AtlasStatus status, const char *text)
{
	HostLinks *h = (HostLinks *)l;
	Lost lost = {.rank = rank, .status = (int32_t)status};
	snprintf(lost.text, sizeof lost.text, "%s", text);
	if (h->group->rank == 0) {
		if (group_lose_here(h->group, rank, status, text))
			send_all(h, LOST, &lost, sizeof lost);
		return;
	}
	pthread_mutex_lock(&h->claiming);
	const bool is_first = !h->claimed;
	if (is_first) {
		h->claim = lost;
		h->claimed = now_ms();
	}
	pthread_mutex_unlock(&h->claiming);
	if (rank == 0 || atomic_load(&h->links[0].is_broken))
		group_lose_here(h->group, rank, status, text);
	else if (is_first)
		send_all(h, LOST, &lost, sizeof lost);
}

/* Receiving ---------------------------------------------------------------------------------------------------- */

/* Takes a message from that rank; false: it is none. */
static bool take(HostLinks *h, int from, MessageKind kind, const uint8_t *bytes, size_t n)
{
	RankGroup *g = h->group;
	Shared *s = g->s;
	const bool is_first = from == 0;
	Lost lost;
	RankRecord record;
	uint32_t at;
	switch (kind) {
	case BEAT:
		return n == 0;
	case ARRIVE:
		if (is_first || n != sizeof(RankFacts))
			return false;
		memcpy(&s->facts[from], bytes, n);
		s->facts[from].build[sizeof s->facts->build - 1] = s->facts[from].card[sizeof s->facts->card - 1] = 0;
		group_arrive(g);
		return true;
	case PASS:
		if (!is_first || n != sizeof(Pass))
			return false;
		memcpy(s->facts, bytes, sizeof s->facts);
		memcpy(s->said, bytes + offsetof(Pass, said), sizeof s->said);
		atomic_fetch_add(&s->generation, 1);
		return true;
	case OPEN:
		atomic_store(&s->is_open, 1);
		return is_first && n == 0;
	case RECORD:
		at = atomic_load(&s->posted);
		if (!is_first || n < sizeof record || !g->records || (int64_t)n > g->record_bytes ||
			at - atomic_load(&s->done[g->rank]) >= GROUP_RECORDS)
			return false;
		memcpy(&record, bytes, sizeof record);
		if (record.bytes != (int64_t)(n - sizeof record))
			return false;
		memcpy(group_record_at(g, at), bytes, n);
		atomic_store(&s->posted, at + 1);
		group_wake(g);
		return true;
	case DONE:
		if (is_first || n != sizeof at)
			return false;
		memcpy(&at, bytes, sizeof at);
		atomic_store(&s->done[from], at);
		return true;
	case LOST:
		if (n != sizeof lost)
			return false;
		memcpy(&lost, bytes, sizeof lost);
		lost.text[sizeof lost.text - 1] = 0;
		if (lost.rank < 0 || lost.rank >= h->n || lost.status <= 0)
			return false;
		if (is_first)
			group_lose_here(g, lost.rank, (AtlasStatus)lost.status, lost.text);
		else
			lose(&h->base, lost.rank, (AtlasStatus)lost.status, lost.text);
		return true;
	default:
		return false;
	}
}

/* All messages that are there as a whole; false: one of them is none, or there is no room for the next one. */
static bool take_all(HostLinks *h, int from)
{
	Link *l = &h->links[from];
	const int64_t of_records = h->group->record_bytes, least = (int64_t)sizeof(Pass);
	const int64_t most = of_records > least ? of_records : least;
	size_t at = 0, need = sizeof(Head);
	while (l->have - at >= sizeof(Head)) {
		Head head;
		memcpy(&head, l->in + at, sizeof head);
		if (head.kind >= MESSAGES || head.bytes > most)
			return false;
		need = sizeof head + head.bytes;
		if (l->have - at < need)
			break;
		if (!take(h, from, (MessageKind)head.kind, l->in + at + sizeof head, head.bytes))
			return false;
		at += need;
		need = sizeof(Head);
	}
	l->have -= at;
	memmove(l->in, l->in + at, l->have);
	if (need > l->room) {
		uint8_t *more = realloc(l->in, need);
		if (!more)
			return false;
		l->in = more;
		l->room = need;
	}
	return true;
}

static void drop(HostLinks *h, int from, const char *why)
{
	atomic_store(&h->links[from].is_broken, true);
	if (!atomic_load(&h->group->is_over) && !atomic_load(&h->stops))
		lose(&h->base, from, ATLAS_RANK_LOST, why);
}

static void receive(HostLinks *h, int from)
{
	Link *l = &h->links[from];
	const ssize_t n = recv(l->socket, l->in + l->have, l->room - l->have, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		drop(h, from, "its process or its connection ended");
		return;
	}
	atomic_store(&h->group->s->beat[from], now_ms());
	l->have += (size_t)n;
	if (!take_all(h, from))
		drop(h, from, "what it sent is not a message of a rank");
}

/* How many connections may still have something. */
static int poll_all(HostLinks *h, int ms)
{
	struct pollfd p[PLAN_MAX_RANKS];
	int ranks[PLAN_MAX_RANKS], n = 0;
	for (int r = 0; r < h->n; r++)
		if (h->links[r].socket && !atomic_load(&h->links[r].is_broken)) {
			p[n] = (struct pollfd){.fd = h->links[r].socket, .events = POLLIN};
			ranks[n++] = r;
		}
	const int ready = poll(p, (nfds_t)n, ms);
	for (int i = 0; i < n && ready > 0; i++)
		if (p[i].revents)
			receive(h, ranks[i]);
	return n;
}

static void *read_all(void *at)
{
	HostLinks *h = at;
	while (!atomic_load(&h->stops))
		if (poll_all(h, TURN_MS) == 0) /* nothing will come any more */
			nanosleep(&(struct timespec){0, TURN_MS * 1000000L}, NULL);
	return NULL;
}

/* Beginning and end ---------------------------------------------------------------------------------------------- */

static bool begin(GroupLinks *l, RankGroup *g)
{
	HostLinks *h = (HostLinks *)l;
	h->group = g;
	h->has_thread = pthread_create(&h->thread, NULL, read_all, h) == 0;
	return h->has_thread;
}

/* What was sent last arrives only if the other end has read it before this one is closed. */
static void close_all(GroupLinks *l)
{
	HostLinks *h = (HostLinks *)l;
	atomic_store(&h->stops, true);
	if (h->has_thread)
		pthread_join(h->thread, NULL);
	for (int r = 0; r < h->n; r++)
		if (h->links[r].socket)
			shutdown(h->links[r].socket, SHUT_WR);
	for (const int64_t until = now_ms() + LAST_MS; h->has_thread && now_ms() < until && poll_all(h, TURN_MS);)
		;
	for (int r = 0; r < h->n; r++) {
		if (h->links[r].socket)
			close(h->links[r].socket);
		pthread_mutex_destroy(&h->links[r].sending);
		free(h->links[r].in);
	}
	pthread_mutex_destroy(&h->claiming);
	free(h);
}

GroupLinks *host_links(int n, const int *sockets)
{
	HostLinks *h = calloc(1, sizeof *h);
	if (!h)
		return NULL;
	h->base = (GroupLinks){begin, beat, arrive, pass, open_all, post, done, lose, close_all};
	h->n = n;
	pthread_mutex_init(&h->claiming, NULL);
	for (int r = 0; r < n; r++) {
		Link *l = &h->links[r];
		pthread_mutex_init(&l->sending, NULL);
		l->room = sizeof(Head) + sizeof(Pass);
		l->in = malloc(l->room);
		l->socket = l->in ? sockets[r] : 0;
	}
	return &h->base;
}
