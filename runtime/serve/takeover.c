/* takeover.c - see takeover.h. */
#include "runtime/serve/takeover.h"
#include "runtime/serve/unix_socket.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/util.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 5000 };
static const char take = 't', keep = 'k';

typedef union Ancillary { /* aligned as the macros want it */
	char bytes[CMSG_SPACE(sizeof(int) * (TAKEOVER_MOST + 1))];
	struct cmsghdr align;
} Ancillary;

/* The server that takes ------------------------------------------------------------ */

/* The control socket first. False: what came is something else. */
static bool receive(int peer, Taken *t)
{
	char byte;
	Ancillary room;
	int fds[TAKEOVER_MOST + 1];
	struct iovec part = {&byte, 1};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof room.bytes};
	if (recvmsg(peer, &message, MSG_CMSG_CLOEXEC) != 1)
		return false;
	const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
		return false;
	const size_t n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(fds, CMSG_DATA(head), n * sizeof(int));
	t->control = fds[0];
	t->n = (int)n - 1;
	memcpy(t->sockets, fds + 1, (n - 1) * sizeof(int));
	return t->n > 0 && byte == take && !(message.msg_flags & MSG_CTRUNC);
}

bool takeover_take(const char *path, Taken *t, char *why, size_t why_bytes)
{
	*t = (Taken){.peer = unix_connect(path), .control = -1};
	if (t->peer < 0 && (errno == ENOENT || errno == ECONNREFUSED))
		return true;
	struct pollfd p = {.fd = t->peer, .events = POLLIN};
	if (t->peer < 0)
		snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
	else if (send(t->peer, &take, 1, MSG_NOSIGNAL) != 1 || poll(&p, 1, PATIENCE_MS) < 0 ||
		(p.revents && !receive(t->peer, t)))
		snprintf(why, why_bytes, "%s: the process there gives no listening sockets", path);
	else if (!p.revents)
		snprintf(why, why_bytes, "%s: the server there does not answer, or another one is taking its place", path);
	else
		return true;
	takeover_close(t);
	return false;
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void takeover_keep(Taken *t)
{
	if (t->peer >= 0)
		(void)!send(t->peer, &keep, 1, MSG_NOSIGNAL); /* where it has ended, there is nothing to say */
	close_one(&t->peer);
}

void takeover_close(Taken *t)
{
	close_one(&t->peer);
	close_one(&t->control);
	while (t->n > 0)
		close(t->sockets[--t->n]);
}

/* The server that gives ------------------------------------------------------------ */

struct Offer {
	OfferOptions options;
	struct event_base *base;
	struct event *accepts, *hears; /* of the control socket, and of the server that takes */
	bool is_sent;
};

static void forget(Offer *o)
{
	if (!o->hears)
		return;
	close(event_get_fd(o->hears));
	event_free(o->hears);
	o->hears = NULL;
}

static bool give(const Offer *o, int peer)
{
	Ancillary room = {0};
	int fds[TAKEOVER_MOST + 1] = {o->options.control};
	const size_t bytes = sizeof(int) * (size_t)(o->options.n + 1);
	struct iovec part = {(char *)&take, 1};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = CMSG_SPACE(bytes)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	*head = (struct cmsghdr){.cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(fds + 1, o->options.sockets, sizeof(int) * (size_t)o->options.n);
	memcpy(CMSG_DATA(head), fds, bytes);
	return sendmsg(peer, &message, MSG_NOSIGNAL) == 1;
}

/* One word at a time; anything else, and the end, leaves all as it was. */
static void on_word(evutil_socket_t fd, short what, void *arg)
{
	Offer *o = arg;
	char word = 0;
	(void)what;
	const bool is_word = read(fd, &word, 1) == 1;
	if (is_word && word == keep && o->is_sent) {
		o->options.given(o->options.ctx);
		return;
	}
	if (is_word && word == take && !o->is_sent && give(o, fd)) {
		o->is_sent = true;
		return;
	}
	forget(o);
	o->is_sent = false;
	event_add(o->accepts, NULL);
}

/* A socket's file may let others in, by the umask of its process: only the same user, and root, may take its place. */
static bool may_take(int peer)
{
	struct ucred who;
	socklen_t n = sizeof who;
	return getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && (who.uid == geteuid() || who.uid == 0);
}

/* Others wait in the socket's queue until this one has gone. */
static void on_taker(evutil_socket_t fd, short what, void *arg)
{
	Offer *o = arg;
	(void)what;
	const int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (peer < 0)
		return;
	if (!may_take(peer)) {
		close(peer);
		return;
	}
	o->hears = event_new(o->base, peer, EV_READ | EV_PERSIST, on_word, o);
	if (!o->hears) {
		close(peer);
		return;
	}
	event_add(o->hears, NULL);
	event_del(o->accepts);
}

Offer *offer_open(struct event_base *base, const OfferOptions *options, char *why, size_t why_bytes)
{
	Offer *o = calloc(1, sizeof *o);
	snprintf(why, why_bytes, "no memory");
	if (!o)
		return NULL;
	o->options = *options;
	o->base = base;
	if (o->options.control < 0)
		o->options.control = unix_listen(options->path, why, why_bytes);
	if (o->options.control >= 0 && evutil_make_socket_nonblocking(o->options.control) == 0)
		o->accepts = event_new(base, o->options.control, EV_READ | EV_PERSIST, on_taker, o);
	if (o->accepts && event_add(o->accepts, NULL) == 0)
		return o;
	offer_close(o);
	return NULL;
}

bool offer_is_out(const Offer *o) { return o && o->is_sent; }

void offer_close(Offer *o)
{
	if (!o)
		return;
	forget(o);
	if (o->accepts)
		event_free(o->accepts);
	if (o->options.control >= 0) {
		close(o->options.control);
		if (!o->is_sent)
			unlink(o->options.path);
	}
	free(o);
}
