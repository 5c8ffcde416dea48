/* takeover.h - one server takes the place of another without a moment in which a connection is refused.
 *
 * A server offers its listening sockets at a Unix socket. The next one, of the same user, connects, says TAKE, and is
 * given descriptors of them and of the Unix socket itself, while the first goes on as before. When its own session is
 * open, the next says KEEP and accepts connections; the first closes its descriptors and finishes what it has. Either
 * may end at any time: the sockets live in the other. All functions belong to the loop's thread.
 */
#ifndef ATLAS_TAKEOVER_H
#define ATLAS_TAKEOVER_H

#include <stdbool.h>
#include <stddef.h>

struct event_base;

enum { TAKEOVER_MOST = 8 };

typedef struct Taken { /* all -1 or 0: nothing was there to take */
	int peer;                            /* to the server before; -1: none, or it has ended */
	int control;                         /* the Unix socket; -1 = none */
	int sockets[TAKEOVER_MOST]; int n;   /* that listen */
} Taken;

/* What a server at the path gives, within five seconds. False with a sentence in why; no server there: true, n 0. */
bool takeover_take(const char *path, Taken *t, char *why, size_t why_bytes);
/* KEEP: from here on the sockets are this server's alone. */
void takeover_keep(Taken *t);
void takeover_close(Taken *t); /* what is still in it */

typedef struct Offer Offer;

typedef struct OfferOptions {
	const char *path;
	int control;                         /* that listens at the path already, owned from here on; -1: it is made */
	int sockets[TAKEOVER_MOST]; int n;
	void (*given)(void *ctx);            /* KEEP was said; the offer is closed by the owner, perhaps here */
	void *ctx;
} OfferOptions;

/* NULL with a sentence in why. */
Offer *offer_open(struct event_base *base, const OfferOptions *options, char *why, size_t why_bytes);
bool offer_is_out(const Offer *o); /* another server has the sockets, or did when it ended */
/* Removes the path unless another server has the socket. NULL does nothing. */
void offer_close(Offer *o);

#endif
