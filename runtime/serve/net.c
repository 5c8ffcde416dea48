/* net.c - see net.h: libevent's listeners, buffered sockets and timers around http_read.c. */
#include "runtime/serve/net.h"
#include "runtime/serve/unix_socket.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	READ_AT_ONCE = 1 << 16,     /* most bytes that wait in a connection's input */
	SEND_AHEAD = 1 << 16,       /* bytes of answers that wait to be sent, with which no next request is read */
	SEND_BYTES = 1 << 16,       /* of a connection in the kernel, which would take megabytes otherwise */
	LINGER_BYTES = 64 << 20,    /* most that is read of a refused peer before it is cut off */
	LINGER_SECONDS = 2,         /* after the peer has the last answer, and how often that is looked at */
	ACCEPT_PAUSE_MS = 100,      /* after the process ran out of descriptors */
};

typedef enum ConnState {
	READING,   /* for a request */
	ANSWERING,
	LEAVING    /* the answer goes out, then the connection ends */
} ConnState;

struct Conn {
	Net *net;
	Conn *next, *before;
	struct bufferevent *bev;
	struct event deadline, stall;
	HttpReader reader;
	ConnState state;
	HttpState seen;     /* the reader's, when the deadline was set */
	void *answer;
	bool keep_alive, is_1_0, is_pumping, is_dead, is_shut;
	bool is_old; /* it has had an answer */
	size_t lingered;
	int untaken; /* bytes, when `stall` was set */
};

struct Net {
	NetOptions options;
	struct event_base *base;
	struct evconnlistener *listeners[NET_SOCKETS];
	int n_listeners;
	struct event *resume;
	Conn *conns;
	int n_conns;
	char name[300];
	bool is_stopped, is_accepting; /* is_accepting: sockets that were taken are its own */
};

static void pump(Conn *c);
static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *change, void *arg);

/* Connections ------------------------------------------------------------ */

static void free_conn(Conn *c)
{
	Net *net = c->net;
	if (c->before)
		c->before->next = c->next;
	else
		net->conns = c->next;
	if (c->next)
		c->next->before = c->before;
	net->n_conns--;
	evtimer_del(&c->deadline);
	evtimer_del(&c->stall);
	evbuffer_remove_cb(bufferevent_get_output(c->bev), on_output, c);
	bufferevent_free(c->bev);
	http_end(&c->reader);
	free(c);
}

void conn_drop(Conn *c)
{
	c->answer = NULL;
	c->is_dead = true;
	if (!c->is_pumping)
		free_conn(c);
}

/* The answer that is made is of no use: its owner makes no more of it. */
static void give_up(Conn *c)
{
	void *answer = c->answer;
	c->answer = NULL;
	if (answer)
		c->net->options.gone(c->net->options.ctx, c, answer);
}

/* The peer is gone, or must go. */
static void lose(Conn *c)
{
	give_up(c);
	conn_drop(c);
}

static struct timeval seconds_of(double s)
{
	return (struct timeval){(time_t)s, (suseconds_t)((s - (double)(time_t)s) * 1e6)};
}

/* None while an answer is made or sent: of a peer that takes no bytes `stall` knows. */
static void set_deadline(Conn *c)
{
	const NetOptions *o = &c->net->options;
	double seconds = 0;
	if (c->state == LEAVING)
		seconds = c->is_shut ? LINGER_SECONDS : 0;
	else if (c->state == READING)
		seconds = c->reader.state == HTTP_BODY           ? o->body_s
			: c->reader.state == HTTP_HEAD || !c->is_old || c->net->is_stopped ? o->head_s
			: conn_pending(c) == 0                       ? o->idle_s
														 : 0;
	c->seen = c->reader.state;
	evtimer_del(&c->deadline);
	if (seconds > 0) {
		const struct timeval t = seconds_of(seconds);
		evtimer_add(&c->deadline, &t);
	}
}

/* Bytes in the kernel that the peer has not taken. */
static int untaken(const Conn *c)
{
	int n = 0;
	return ioctl(bufferevent_getfd(c->bev), SIOCOUTQ, &n) == 0 ? n : 0;
}

static void await_peer(Conn *c)
{
	const struct timeval stall = seconds_of(c->net->options.stall_s);
	c->untaken = untaken(c);
	evtimer_add(&c->stall, &stall);
}

/* The peer may still be sending: a close now would reset the connection and take the answer with it. So only this side
 * is shut, and what comes is read and dropped until it has all and for a while. */
static void leave(Conn *c)
{
	struct evbuffer *in = bufferevent_get_input(c->bev);
	evbuffer_drain(in, evbuffer_get_length(in));
	c->state = LEAVING;
	if (conn_pending(c) == 0 && !c->is_shut) {
		c->is_shut = true;
		shutdown(bufferevent_getfd(c->bev), SHUT_WR);
	}
	set_deadline(c);
}

static void refuse_stream(Conn *c)
{
	c->keep_alive = false;
	c->state = ANSWERING;
	c->is_1_0 = c->reader.request.minor == 0 && c->reader.request.method;
	c->net->options.bad(c->net->options.ctx, c, &c->reader);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	Conn *c = arg;
	(void)fd, (void)what;
	if (c->state == LEAVING && untaken(c)) {
		if (!evtimer_pending(&c->stall, NULL))
			await_peer(c);
		set_deadline(c);
		return;
	}
	if (c->state != READING || c->reader.state == HTTP_IDLE) {
		(c->state == READING ? leave : lose)(c);
		return;
	}
	c->reader.status = 408;
	c->reader.why = c->reader.state == HTTP_HEAD ? "the head did not come in time" : "the body did not come in time";
	c->is_pumping = true;
	refuse_stream(c);
	c->is_pumping = false;
	if (c->is_dead)
		free_conn(c);
}

static void conn_continue(Conn *c)
{
	static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
	bufferevent_write(c->bev, line, sizeof line - 1);
}

/* Reads what is there; a request that is whole goes to the owner, whose answer may come at once or later. */
static void pump(Conn *c)
{
	struct evbuffer *in = bufferevent_get_input(c->bev);
	if (c->is_pumping)
		return;
	c->is_pumping = true;
	while (!c->is_dead && c->state == READING && evbuffer_get_length(in) &&
		(c->reader.state != HTTP_IDLE || conn_pending(c) < SEND_AHEAD)) {
		const size_t n = evbuffer_get_contiguous_space(in);
		const size_t used = http_feed(&c->reader, (const char *)evbuffer_pullup(in, (ev_ssize_t)n), n);
		evbuffer_drain(in, used);
		if (c->reader.state == HTTP_BODY && c->seen != HTTP_BODY && c->reader.request.expects_continue)
			conn_continue(c);
		if (c->reader.state == HTTP_DONE) {
			c->state = ANSWERING;
			c->keep_alive = c->reader.request.keep_alive && !c->net->is_stopped;
			c->is_1_0 = c->reader.request.minor == 0;
			set_deadline(c);
			c->net->options.request(c->net->options.ctx, c, &c->reader);
		} else if (c->reader.state == HTTP_BAD) {
			refuse_stream(c);
		} else if (c->reader.state != c->seen) {
			set_deadline(c);
		}
	}
	c->is_pumping = false;
	if (c->is_dead)
		free_conn(c);
}

static void on_read(struct bufferevent *bev, void *arg)
{
	Conn *c = arg;
	struct evbuffer *in = bufferevent_get_input(bev);
	const size_t n = evbuffer_get_length(in);
	if (c->state == LEAVING) {
		c->lingered += n;
		evbuffer_drain(in, n);
		if (c->lingered > LINGER_BYTES)
			lose(c);
	} else if (c->state == ANSWERING && n >= READ_AT_ONCE) {
		lose(c); /* its end could no longer be seen */
	} else {
		pump(c);
	}
}

static void on_written(struct bufferevent *bev, void *arg)
{
	(void)bev;
	Conn *c = arg;
	if (c->state == LEAVING && !c->is_shut)
		leave(c);
	if (c->state == READING && c->reader.state == HTTP_IDLE) {
		set_deadline(c);
		pump(c);
	}
}

/* The end of the stream or an error. A peer that ends its half counts as gone, but has what was answered before. */
static void on_event(struct bufferevent *bev, short what, void *arg)
{
	Conn *c = arg;
	(void)bev;
	give_up(c);
	(what & BEV_EVENT_EOF && conn_pending(c) ? leave : conn_drop)(c);
}

/* A peer that reads slowly takes bytes of the kernel's long before the socket is writable again. */
static void on_stall(evutil_socket_t fd, short what, void *arg)
{
	Conn *c = arg;
	(void)fd, (void)what;
	if (untaken(c) < c->untaken)
		await_peer(c);
	else
		lose(c);
}

/* Only bytes taken by the peer set the timer again. The write timeout of a bufferevent does not do: bytes added in the
 * turn of the loop in which it ends start it anew. */
static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *change, void *arg)
{
	Conn *c = arg;
	if (evbuffer_get_length(out) == 0)
		evtimer_del(&c->stall);
	else if (change->n_deleted || change->orig_size == 0)
		await_peer(c);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int n, void *arg)
{
	static const char full[] =
		"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
		"Retry-After: 1\r\nContent-Length: 109\r\n\r\n"
		"{\"error\":{\"message\":\"there are too many connections\",\"type\":\"server_error\","
		"\"param\":null,\"code\":\"overloaded\"}}";
	Net *net = arg;
	const int one = 1, room = SEND_BYTES;
	(void)listener, (void)n;
	Conn *c = net->n_conns < net->options.max_connections ? calloc(1, sizeof *c) : NULL;
	struct bufferevent *bev = c ? bufferevent_socket_new(net->base, fd, BEV_OPT_CLOSE_ON_FREE) : NULL;
	if (!bev || !evbuffer_add_cb(bufferevent_get_output(bev), on_output, c)) {
		(void)!send(fd, full, sizeof full - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (bev)
			bufferevent_free(bev);
		else
			close(fd);
		free(c);
		return;
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	if (from->sa_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	*c = (Conn){.net = net, .bev = bev, .next = net->conns};
	evtimer_assign(&c->deadline, net->base, on_deadline, c);
	evtimer_assign(&c->stall, net->base, on_stall, c);
	if (net->conns)
		net->conns->before = c;
	net->conns = c;
	net->n_conns++;
	http_start(&c->reader, net->options.limits);
	bufferevent_setcb(bev, on_read, on_written, on_event, c);
	bufferevent_setwatermark(bev, EV_READ, 0, READ_AT_ONCE);
	bufferevent_enable(bev, EV_READ | EV_WRITE);
	set_deadline(c);
}

/* Answers ------------------------------------------------------------ */

void conn_set_answer(Conn *c, void *answer) { c->answer = answer; }
void conn_keep_alive(Conn *c, bool on) { c->keep_alive &= on; }
size_t conn_pending(const Conn *c) { return evbuffer_get_length(bufferevent_get_output(c->bev)); }

static void put_head(Conn *c, int status, const char *type, const char *fields)
{
	const time_t now = time(NULL);
	struct tm t;
	char date[40]; /* in the words of the locale C: serve asks for no other */
	strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &t));
	c->keep_alive &= !c->net->is_stopped;
	evbuffer_add_printf(bufferevent_get_output(c->bev),
		"HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\n%s%s", status, http_reason(status), date, type, fields,
		!c->keep_alive  ? "Connection: close\r\n"
			: c->is_1_0 ? "Connection: keep-alive\r\n"
						: "");
}

/* The answer is whole: on to the next request, or to the end. */
static void finish(Conn *c)
{
	c->answer = NULL;
	if (!c->keep_alive) {
		leave(c);
		return;
	}
	http_end(&c->reader);
	c->state = READING;
	c->is_old = true;
	set_deadline(c);
	pump(c);
}

void conn_answer(Conn *c, int status, const char *type, const char *fields, const void *body, size_t n)
{
	const char *method = c->reader.request.method;
	put_head(c, status, type, fields);
	evbuffer_add_printf(bufferevent_get_output(c->bev), "Content-Length: %zu\r\n\r\n", n);
	if (n && (!method || strcmp(method, "HEAD") != 0))
		bufferevent_write(c->bev, body, n);
	finish(c);
}

/* HTTP/1.0 knows no chunks: there the stream ends with the connection. */
void conn_stream_begin(Conn *c, const char *type, const char *fields)
{
	if (c->is_1_0)
		c->keep_alive = false;
	put_head(c, 200, type, fields);
	evbuffer_add_printf(bufferevent_get_output(c->bev), "%s\r\n", c->is_1_0 ? "" : "Transfer-Encoding: chunked\r\n");
}

/* Straight to the socket where nothing waits before it: one call of the system, where the buffer's way takes four. */
static size_t send_now(Conn *c, const struct iovec *parts, int n)
{
	struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)n};
	if (conn_pending(c))
		return 0;
	const ssize_t sent = sendmsg(bufferevent_getfd(c->bev), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	return sent > 0 ? (size_t)sent : 0; /* what failed is tried again from the buffer, which sees the error */
}

void conn_stream_add(Conn *c, const void *bytes, size_t n)
{
	char size[20];
	if (!n)
		return;
	const int width = c->is_1_0 ? 0 : snprintf(size, sizeof size, "%zx\r\n", n);
	const struct iovec parts[3] = {{size, (size_t)width}, {(void *)bytes, n}, {(void *)"\r\n", c->is_1_0 ? 0 : 2}};
	size_t sent = send_now(c, parts, 3);
	for (int i = 0; i < 3; i++) {
		const size_t gone = sent < parts[i].iov_len ? sent : parts[i].iov_len;
		sent -= gone;
		if (gone < parts[i].iov_len)
			bufferevent_write(c->bev, (const char *)parts[i].iov_base + gone, parts[i].iov_len - gone);
	}
}

void conn_stream_end(Conn *c, bool is_whole)
{
	if (is_whole && !c->is_1_0)
		bufferevent_write(c->bev, "0\r\n\r\n", 5);
	c->keep_alive &= is_whole;
	finish(c);
}

/* Listening ------------------------------------------------------------ */

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	net_accept(arg);
}

/* No descriptor is left: accepting again at once would only spin. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
	Net *net = arg;
	const struct timeval t = {0, ACCEPT_PAUSE_MS * 1000};
	evconnlistener_disable(listener);
	evtimer_add(net->resume, &t);
}

/* Listens at a socket, which is the net's from here on. */
static bool add_listener(Net *net, int fd)
{
	const unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC |
		(net->options.n_sockets ? LEV_OPT_DISABLED : 0);
	struct evconnlistener *l = fd < 0 || evutil_make_socket_nonblocking(fd) != 0 ? NULL
		: evconnlistener_new(net->base, on_accept, net, flags, 0, fd);
	if (!l) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	evconnlistener_set_error_cb(l, on_accept_error);
	net->listeners[net->n_listeners++] = l;
	return true;
}

static bool listen_at(Net *net, const struct addrinfo *a)
{
	enum { BACKLOG = 1024 };
	const int one = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
		return add_listener(net, fd);
	const int error = errno;
	close(fd);
	errno = error;
	return false;
}

static bool listen_unix(Net *net, const char *path, char *why, size_t why_bytes)
{
	const int fd = unix_listen(path, why, why_bytes);
	if (fd >= 0 && !add_listener(net, fd))
		return snprintf(why, why_bytes, "no memory"), false;
	return fd >= 0;
}

static bool listen_tcp(Net *net, const struct addrinfo *found, char *why, size_t why_bytes)
{
	const NetOptions *o = &net->options;
	for (const struct addrinfo *a = found; a && net->n_listeners < NET_SOCKETS; a = a->ai_next) {
		if (!listen_at(net, a))
			return snprintf(why, why_bytes, "%s, port %s: %s", o->host, o->port, strerror(errno)), false;
		if (strcmp(o->port, "0") == 0)
			break;
	}
	return true;
}

/* Does the socket listen where the options say? found: NULL for a Unix socket. */
static bool is_asked(const NetOptions *o, const struct addrinfo *found, int fd)
{
	union { struct sockaddr any; struct sockaddr_un un; struct sockaddr_in in; struct sockaddr_in6 six; } at;
	socklen_t n = sizeof at;
	memset(&at, 0, sizeof at);
	if (getsockname(fd, &at.any, &n) != 0 || (at.any.sa_family == AF_UNIX) != (o->socket_path != NULL))
		return false;
	if (o->socket_path)
		return strncmp(at.un.sun_path, o->socket_path, sizeof at.un.sun_path) == 0;
	if (strcmp(o->port, "0") == 0)
		at.in.sin_port = 0; /* any: it is in the same place in an address of IPv6 */
	for (const struct addrinfo *a = found; a; a = a->ai_next) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)a->ai_addr;
		const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)a->ai_addr;
		if (at.any.sa_family == a->ai_family && at.in.sin_port == in->sin_port &&
			(a->ai_family == AF_INET ? at.in.sin_addr.s_addr == in->sin_addr.s_addr
									 : memcmp(&at.six.sin6_addr, &six->sin6_addr, sizeof six->sin6_addr) == 0))
			return true;
	}
	return false;
}

/* Those of a server before this one. */
static bool adopt(Net *net, const struct addrinfo *found, char *why, size_t why_bytes)
{
	const NetOptions *o = &net->options;
	bool good = true;
	for (int i = 0; i < o->n_sockets; i++)
		good &= is_asked(o, found, o->sockets[i]);
	if (!good)
		return snprintf(why, why_bytes, "the server before this one listens elsewhere: give this one the same --host "
			"and --port, or --socket"), false;
	for (int i = 0; good && i < o->n_sockets; i++)
		good = add_listener(net, fcntl(o->sockets[i], F_DUPFD_CLOEXEC, 0));
	return good || (snprintf(why, why_bytes, "no memory or descriptor"), false);
}

static void put_name(Net *net)
{
	char text[64] = "", number[16] = "";
	struct sockaddr_storage at;
	socklen_t n = sizeof at;
	if (net->options.socket_path) {
		snprintf(net->name, sizeof net->name, "unix:%s", net->options.socket_path);
		return;
	}
	getsockname(evconnlistener_get_fd(net->listeners[0]), (struct sockaddr *)&at, &n);
	getnameinfo((struct sockaddr *)&at, n, text, sizeof text, number, sizeof number, NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(net->name, sizeof net->name, strchr(text, ':') ? "http://[%s]:%s" : "http://%s:%s", text, number);
}

static bool listen_all(Net *net, char *why, size_t why_bytes)
{
	const NetOptions *o = &net->options;
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	struct addrinfo *found = NULL;
	const int bad = o->socket_path ? 0 : getaddrinfo(o->host, o->port, &hints, &found);
	if (bad)
		return snprintf(why, why_bytes, "%s: %s", o->host, gai_strerror(bad)), false;
	const bool good = o->n_sockets ? adopt(net, found, why, why_bytes)
		: o->socket_path         ? listen_unix(net, o->socket_path, why, why_bytes)
								 : listen_tcp(net, found, why, why_bytes);
	if (found)
		freeaddrinfo(found);
	if (good)
		put_name(net);
	return good;
}

Net *net_open(struct event_base *base, const NetOptions *options, char *why, size_t why_bytes)
{
	Net *net = calloc(1, sizeof *net);
	snprintf(why, why_bytes, "no memory");
	if (!net)
		return NULL;
	net->options = *options;
	net->base = base;
	net->resume = evtimer_new(base, on_resume, net);
	if (net->resume && listen_all(net, why, why_bytes))
		return net;
	net_close(net);
	return NULL;
}

const char *net_name(const Net *net) { return net->name; }

int net_sockets(const Net *net, int fds[NET_SOCKETS])
{
	for (int i = 0; i < net->n_listeners; i++)
		fds[i] = evconnlistener_get_fd(net->listeners[i]);
	return net->n_listeners;
}

void net_accept(Net *net)
{
	net->is_accepting = true;
	for (int i = 0; i < net->n_listeners; i++)
		evconnlistener_enable(net->listeners[i]);
}

int net_busy(const Net *net)
{
	int n = 0;
	for (const Conn *c = net->conns; c; c = c->next)
		n += !c->is_shut || untaken(c);
	return n;
}

static void stop_listeners(Net *net, bool is_given)
{
	for (int i = 0; i < net->n_listeners; i++)
		evconnlistener_free(net->listeners[i]);
	if (net->n_listeners && net->options.socket_path && !is_given)
		unlink(net->options.socket_path);
	net->n_listeners = 0;
	if (net->resume)
		evtimer_del(net->resume);
}

void net_stop_listening(Net *net, bool is_given)
{
	stop_listeners(net, is_given);
	net->is_stopped = true;
	for (Conn *c = net->conns, *next; c; c = next) {
		next = c->next;
		if (c->state == READING && c->reader.state == HTTP_IDLE)
			leave(c);
	}
}

/* A client that has a connection may be about to send: it has the time for a head, and then the last answer. */
void net_give_sockets(Net *net)
{
	stop_listeners(net, true);
	net->is_stopped = true;
	for (Conn *c = net->conns; c; c = c->next)
		if (c->state == READING && c->reader.state == HTTP_IDLE)
			set_deadline(c);
}

void net_close(Net *net)
{
	if (!net)
		return;
	stop_listeners(net, net->options.n_sockets && !net->is_accepting);
	while (net->conns)
		lose(net->conns);
	if (net->resume)
		event_free(net->resume);
	free(net);
}
