/* host_meet.c - ranks of several hosts meet by TCP: see rank_meet.h.
 *
 *   rank -> 0   Hello: a number of its own
 *   0 -> rank   Proof: another number, and what only the key can make of both
 *   rank -> 0   Entry: its greeting, and what only the key can make of that and both numbers
 *   0 -> rank   Answer, when all are there or one was refused
 *
 * Rank 0 hears many at once, each for two seconds, so that strangers keep no rank out.
 */
#include "artifacts/seconds.h"
#include "runtime/device.h"
#include "runtime/meet/greeting.h"
#include "runtime/meet/host_links.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/utils.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HASH = crypto_auth_hmacsha256_BYTES, TURN_MS = 50, GUESTS = 32, ANSWER_MORE_MS = 5000 };

typedef struct Hello { uint32_t magic, layout; uint8_t number[HASH]; } Hello;
typedef struct Proof { uint32_t magic, layout; uint8_t number[HASH], mac[HASH]; } Proof;
typedef struct Entry { Greeting greeting; uint8_t mac[HASH]; } Entry;

static int64_t now_ms(void) { return (int64_t)(seconds_now() * 1e3); }
static void pause_ms(int ms) { nanosleep(&(struct timespec){0, ms * 1000000L}, NULL); }

/* HMAC-SHA-256 (RFC 2104) of what `who` says after both numbers. */
static void make_mac(MeetKey key, const char *who, const uint8_t *of_rank, const uint8_t *of_first, const Greeting *g,
	uint8_t mac[HASH])
{
	crypto_auth_hmacsha256_state h;
	crypto_auth_hmacsha256_init(&h, key.bytes, key.n);
	crypto_auth_hmacsha256_update(&h, (const uint8_t *)who, strlen(who));
	crypto_auth_hmacsha256_update(&h, of_rank, HASH);
	crypto_auth_hmacsha256_update(&h, of_first, HASH);
	if (g)
		crypto_auth_hmacsha256_update(&h, (const uint8_t *)g, sizeof *g);
	crypto_auth_hmacsha256_final(&h, mac);
}

/* In a time that does not depend on where they differ. */
static bool is_same(const uint8_t *a, const uint8_t *b) { return sodium_memcmp(a, b, HASH) == 0; }

bool is_meet_address(const char *text)
{
	const char *colon = strrchr(text, ':');
	return colon && colon > text && colon[1] && !strchr(text, '/') &&
		strspn(colon + 1, "0123456789") == strlen(colon + 1);
}

/* NULL: there is none, with an error. */
static struct addrinfo *find_address(const char *address, AtlasError *error)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	char host[256];
	const char *port = strrchr(address, ':') + 1;
	const bool is_bracketed = *address == '[' && port[-2] == ']';
	const size_t n = (size_t)(port - 1 - address) - 2 * is_bracketed;
	if (n >= sizeof host || strtol(port, NULL, 10) < 1 || strtol(port, NULL, 10) > 65535) {
		error_set(error, ATLAS_ARGUMENT, "--rendezvous %.300s: expected HOST:PORT, a port from 1 to 65535", address);
		return NULL;
	}
	memcpy(host, address + is_bracketed, n);
	host[n] = 0;
	const int bad = getaddrinfo(host, port, &hints, &found);
	if (!bad)
		return found;
	error_set(error, ATLAS_ARGUMENT, "--rendezvous %s: the host is not found: %s", address, gai_strerror(bad));
	return NULL;
}

static AtlasStatus taken(const char *address, AtlasError *error)
{
	return error_set(error, ATLAS_RANK_MISMATCH, "--rendezvous %s: the port is taken by another program", address);
}

/* Small messages go at once. */
static void set_socket(int s) { setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); }

/* All n bytes by then: 1; 0: the end, or not in time; -1: the end before the first one. */
static int receive(int from, void *to, size_t n, int64_t until)
{
	size_t have = 0;
	while (have < n && now_ms() < until) {
		if (poll(&(struct pollfd){.fd = from, .events = POLLIN}, 1, TURN_MS) != 1)
			continue;
		const ssize_t got = recv(from, (uint8_t *)to + have, n - have, MSG_DONTWAIT);
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
			return have ? 0 : -1;
		have += got > 0 ? (size_t)got : 0;
	}
	return have == n;
}

/* What is less than a socket takes at once. */
static bool say(int to, const void *bytes, size_t n)
{
	return send(to, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

/* Rank 0 ---------------------------------------------------------------------------------------------------- */

/* Does it mean all addresses of the host, of IPv4 also as IPv6 has it? */
static bool is_any(const struct sockaddr *at)
{
	const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr;
	return at->sa_family == AF_INET ? ((const struct sockaddr_in *)(const void *)at)->sin_addr.s_addr == 0
		: IN6_IS_ADDR_UNSPECIFIED(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr32[3] == 0);
}

/* Listens at the first address that the host has; -1 with an error. */
static int listen_at(const char *address, AtlasError *error)
{
	struct addrinfo *found = find_address(address, error);
	int s = -1;
	for (const struct addrinfo *a = found; a && s < 0; a = a->ai_next) {
		if (is_any(a->ai_addr)) {
			error_set(error, ATLAS_ARGUMENT, "--rendezvous %s: rank 0 listens at one address, which the others reach, "
				"not at all it has", address);
			continue;
		}
		s = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
		if (s >= 0 && bind(s, a->ai_addr, a->ai_addrlen) == 0 && listen(s, GUESTS) == 0)
			continue;
		if (errno == EADDRINUSE)
			taken(address, error);
		else
			error_set(error, ATLAS_ARGUMENT, "--rendezvous %s: rank 0 cannot listen there: %s", address,
				errno == EADDRNOTAVAIL ? "its host has no such address" : strerror(errno));
		if (s >= 0)
			close(s);
		s = -1;
	}
	if (found)
		freeaddrinfo(found);
	return s;
}

/* One that has come and has not shown yet who it is. */
typedef struct Guest {
	int socket;      /* 0 = none */
	int64_t until;
	bool has_said_hello;
	Hello hello; Entry entry;
	size_t have;     /* bytes of the one at hand */
	uint8_t number[HASH];
} Guest;

typedef struct Meeting {
	MeetKey key;
	const MeetSeat *seat;
	int n, links[PLAN_MAX_RANKS];
	int strangers;   /* that had another key */
	Guest guests[GUESTS];
	bool is_bad; AtlasError error; /* what all hear */
} Meeting;

static void say_to(int link, const AtlasError *error)
{
	Answer a = {.magic = MEET_MAGIC, .status = (int)error->status};
	snprintf(a.text, sizeof a.text, "%s", error->text);
	say(link, &a, sizeof a);
}

static void forget(Guest *g)
{
	close(g->socket);
	g->socket = 0;
}

static void enter(Meeting *m, Guest *g)
{
	uint8_t mac[HASH];
	AtlasError own = {0};
	make_mac(m->key, "rank", g->hello.number, g->number, &g->entry.greeting, mac);
	if (!is_same(mac, g->entry.mac)) {
		m->strangers++;
		forget(g);
		return;
	}
	const int rank = meet_judge(&g->entry.greeting, m->seat, m->links, &own);
	if (rank > 0) {
		m->links[rank] = g->socket;
		g->socket = 0;
		return;
	}
	if (!m->is_bad)
		m->error = own;
	m->is_bad = true;
	say_to(g->socket, &m->error);
	forget(g);
}

static void hear(Meeting *m, Guest *g)
{
	const size_t need = g->has_said_hello ? sizeof g->entry : sizeof g->hello;
	uint8_t *to = g->has_said_hello ? (uint8_t *)&g->entry : (uint8_t *)&g->hello;
	const ssize_t n = recv(g->socket, to + g->have, need - g->have, MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		forget(g);
		return;
	}
	g->have += n > 0 ? (size_t)n : 0;
	if (g->have < need)
		return;
	g->have = 0;
	if (g->has_said_hello) {
		enter(m, g);
		return;
	}
	Proof p = {.magic = MEET_MAGIC, .layout = MEET_LAYOUT};
	memcpy(p.number, g->number, sizeof p.number);
	make_mac(m->key, "rank 0", g->hello.number, g->number, NULL, p.mac);
	g->has_said_hello = true;
	if (g->hello.magic != MEET_MAGIC || !say(g->socket, &p, sizeof p))
		forget(g);
}

/* Where there is no room, who has been there longest goes. */
static void let_in(Meeting *m, int listener)
{
	Guest *to = &m->guests[0];
	for (int i = 1; i < GUESTS && to->socket; i++)
		if (!m->guests[i].socket || m->guests[i].until < to->until)
			to = &m->guests[i];
	const int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (s < 0)
		return;
	if (to->socket)
		forget(to);
	*to = (Guest){.socket = s, .until = now_ms() + MEET_WORD_MS};
	set_socket(s);
	if (getrandom(to->number, sizeof to->number, 0) != (ssize_t)sizeof to->number)
		forget(to);
}

/* Links to all others, or m->error. */
static void gather(Meeting *m, int listener, int within_ms)
{
	int64_t until = now_ms() + within_ms;
	bool was_bad = false;
	while (meet_missing(m->n, m->links) < m->n && now_ms() < until) {
		struct pollfd p[1 + GUESTS] = {{.fd = listener, .events = POLLIN}};
		for (int i = 0; i < GUESTS; i++)
			p[1 + i] = (struct pollfd){.fd = m->guests[i].socket ? m->guests[i].socket : -1, .events = POLLIN};
		poll(p, 1 + GUESTS, TURN_MS);
		for (int i = 0; i < GUESTS; i++) {
			Guest *g = &m->guests[i];
			if (g->socket && p[1 + i].revents)
				hear(m, g);
			else if (g->socket && now_ms() > g->until)
				forget(g);
		}
		if (p[0].revents)
			let_in(m, listener);
		if (m->is_bad && !was_bad) /* those that come now hear it too */
			until = now_ms() + MEET_WORD_MS / 2;
		was_bad = m->is_bad;
	}
	if (!m->is_bad && meet_missing(m->n, m->links) < m->n) {
		char more[64] = "";
		if (m->strangers)
			snprintf(more, sizeof more, "; %d came with another key", m->strangers);
		error_set(&m->error, ATLAS_RANK_LOST, "rank %d has not come within %d seconds%s",
			meet_missing(m->n, m->links), within_ms / 1000, more);
		m->is_bad = true;
	}
	for (int i = 0; i < GUESTS; i++)
		if (m->guests[i].socket)
			forget(&m->guests[i]);
}

static RankGroup *group_over(int n, const int *links, AtlasError *error)
{
	GroupLinks *l = host_links(n, links);
	RankGroup *g = l ? group_of_hosts(n, l, error) : NULL;
	if (!l)
		error_set(error, ATLAS_NO_MEMORY, "no memory for %d ranks", n);
	return g; /* without one the command ends */
}

static RankGroup *meet_others(const char *address, MeetKey key, const MeetSeat *seat, int within_ms, AtlasError *error)
{
	Meeting *m = calloc(1, sizeof *m);
	const int s = m ? listen_at(address, error) : -1;
	if (s < 0) {
		free(m);
		return NULL;
	}
	m->key = key;
	m->seat = seat;
	m->n = seat->n;
	gather(m, s, within_ms);
	close(s);
	for (int r = 1; r < m->n; r++) {
		if (m->links[r])
			say_to(m->links[r], &m->error);
		if (m->links[r] && m->is_bad)
			close(m->links[r]);
	}
	RankGroup *g = m->is_bad ? NULL : group_over(m->n, m->links, error);
	if (m->is_bad)
		*error = m->error;
	free(m);
	return g;
}

/* The others -------------------------------------------------------------------------------------------------- */

/* Connected; -1: not by then, and *why. */
static int try_all(const struct addrinfo *found, int64_t until, int *why)
{
	for (const struct addrinfo *a = found; a; a = a->ai_next) {
		const int s = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		socklen_t size = sizeof *why;
		*why = errno;
		if (s < 0)
			continue;
		const int64_t left = until - now_ms();
		*why = connect(s, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
		if (*why == EINPROGRESS) {
			*why = ETIMEDOUT;
			if (poll(&(struct pollfd){.fd = s, .events = POLLOUT}, 1, left > 0 ? (int)left : 0) == 1)
				getsockopt(s, SOL_SOCKET, SO_ERROR, why, &size);
		}
		if (*why == 0)
			return s;
		close(s);
	}
	return -1;
}

static int connect_to(const char *address, int within_ms, AtlasError *error)
{
	struct addrinfo *found = find_address(address, error);
	const int64_t until = now_ms() + within_ms;
	int s = -1, why = 0;
	while (found && (s = try_all(found, until, &why)) < 0 && now_ms() < until)
		pause_ms(TURN_MS);
	if (found && s < 0)
		error_set(error, ATLAS_RANK_LOST, "--rendezvous %s: rank 0 has not come: %s", address, strerror(why));
	else if (s >= 0)
		set_socket(s);
	if (found)
		freeaddrinfo(found);
	return s;
}

/* Shows rank 0 who this is, and has it show that it is rank 0. */
static AtlasStatus introduce(int s, const char *address, MeetKey key, const MeetSeat *seat, AtlasError *error)
{
	Hello hello = {.magic = MEET_MAGIC, .layout = MEET_LAYOUT};
	Entry entry = {.greeting = meet_greeting(seat)};
	Proof proof;
	uint8_t mac[HASH];
	if (getrandom(hello.number, sizeof hello.number, 0) != (ssize_t)sizeof hello.number)
		return error_set(error, ATLAS_IO, "no random numbers: %s", strerror(errno));
	if (!say(s, &hello, sizeof hello) || receive(s, &proof, sizeof proof, now_ms() + ANSWER_MORE_MS) != 1 ||
		proof.magic != MEET_MAGIC)
		return taken(address, error);
	if (proof.layout != MEET_LAYOUT)
		return error_set(error, ATLAS_RANK_MISMATCH, "rank %d has another build of atlas than rank 0", seat->rank);
	make_mac(key, "rank 0", hello.number, proof.number, NULL, mac);
	if (!is_same(mac, proof.mac))
		return error_set(error, ATLAS_RANK_MISMATCH, "--rendezvous %s: rank 0 has another key", address);
	make_mac(key, "rank", hello.number, proof.number, &entry.greeting, entry.mac);
	return say(s, &entry, sizeof entry) ? ATLAS_OK
		: error_set(error, ATLAS_RANK_LOST, "rank 0 was lost: it has not said who is there");
}

static RankGroup *meet_first(const char *address, MeetKey key, const MeetSeat *seat, int within_ms, AtlasError *error)
{
	const int64_t until = now_ms() + within_ms;
	const int s = connect_to(address, within_ms, error);
	Answer answer;
	if (s < 0)
		return NULL;
	AtlasStatus status = introduce(s, address, key, seat, error);
	if (status == ATLAS_OK) {
		const int heard = receive(s, &answer, sizeof answer, until + ANSWER_MORE_MS);
		answer.text[sizeof answer.text - 1] = 0;
		status = heard != 1 || answer.magic != MEET_MAGIC
			? error_set(error, ATLAS_RANK_LOST, "rank 0 was lost: it has not said who is there")
			: answer.status ? error_set(error, (AtlasStatus)answer.status, "%s", answer.text) : ATLAS_OK;
	}
	if (status == ATLAS_OK)
		return group_over(seat->n, (const int[PLAN_MAX_RANKS]){s}, error);
	close(s);
	return NULL;
}

RankGroup *group_meet_hosts(const char *address, MeetKey key, const MeetSeat *seat, int within_ms, AtlasError *error)
{
	return seat->rank ? meet_first(address, key, seat, within_ms, error)
		: meet_others(address, key, seat, within_ms, error);
}
