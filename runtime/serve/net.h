/* net.h - listening sockets and connections of the event loop: requests in, answers out.
 *
 * A connection carries one request at a time. When it is whole, the owner's `request` is called, and from there until
 * conn_answer or conn_stream_end the connection belongs to that answer; bytes of a next request wait. A peer that goes
 * away meanwhile is reported by `gone`, also while nothing is written, because the socket is read all the time.
 * Deadlines: `idle` seconds between the last byte of an answer and the next request, `head` for a request's head (and
 * for the first byte of a connection), `body` for its body, `stall` for a peer that takes no bytes.
 * All functions belong to the loop's thread.
 */
#ifndef ATLAS_NET_H
#define ATLAS_NET_H

#include "runtime/serve/http_read.h"

struct event_base;
typedef struct Net Net;
typedef struct Conn Conn;

enum { NET_SOCKETS = 8 };

typedef struct NetOptions {
	const char *host, *port;  /* of TCP; NULL = none */
	const char *socket_path;  /* of a Unix socket; NULL = none */
	int sockets[NET_SOCKETS]; int n_sockets; /* that listen there already, as the caller's; 0 = none */
	HttpLimits limits;
	int max_connections;
	double idle_s, head_s, body_s, stall_s;
	void *ctx;
	void (*request)(void *ctx, Conn *c, HttpReader *r);
	/* The stream of c was no request: r->status, r->why, and as much of r->request as was read. Answer and close:
	 * conn_answer with keep_alive off. */
	void (*bad)(void *ctx, Conn *c, const HttpReader *r);
	void (*gone)(void *ctx, Conn *c, void *answer); /* answer: what conn_set_answer gave, never NULL */
} NetOptions;

/* NULL with a sentence in why. Sockets that listen already are duplicated, and left alone until net_accept. */
Net *net_open(struct event_base *base, const NetOptions *options, char *why, size_t why_bytes);
const char *net_name(const Net *net);   /* "http://127.0.0.1:8080", "unix:PATH": where it listens */
int net_busy(const Net *net);           /* connections that still have something to send or to read */
int net_sockets(const Net *net, int fds[NET_SOCKETS]); /* that listen, still the net's: how many */
void net_accept(Net *net);
/* And ends connections that wait for a request, once their answers are out. is_given: another process listens. */
void net_stop_listening(Net *net, bool is_given);
/* Another process listens; connections that are there have one more answer. */
void net_give_sockets(Net *net);
void net_close(Net *net);               /* and all connections, as if their peers went away */

/* What `gone` gets; NULL = there is no need to call it. */
void conn_set_answer(Conn *c, void *answer);
void conn_keep_alive(Conn *c, bool on); /* the next answer keeps the connection, if the peer wants it too */

/* The whole answer; of HEAD, its head alone. fields: header lines, each with CR LF; "" = none. */
void conn_answer(Conn *c, int status, const char *type, const char *fields, const void *body, size_t n);
/* A stream: head, any number of pieces, end. is_whole false: the connection is closed without the last chunk. */
void conn_stream_begin(Conn *c, const char *type, const char *fields);
void conn_stream_add(Conn *c, const void *bytes, size_t n);
void conn_stream_end(Conn *c, bool is_whole);
size_t conn_pending(const Conn *c);     /* bytes that the peer has not taken */
void conn_drop(Conn *c);                /* closes at once; calls no `gone` */

#endif
