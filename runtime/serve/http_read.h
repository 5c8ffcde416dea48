/* http_read.h - bytes of a client to one HTTP/1.1 request, strictly.
 *
 *	HttpReader r;
 *	http_start(&r, limits);
 *	while (bytes come && http_is_open(&r))
 *		used = http_feed(&r, bytes, n);        // what it did not use belongs to the next request
 *	if (r.state == HTTP_DONE) answer(&r.request);
 *	if (r.state == HTTP_BAD) refuse with r.status and r.why, and close
 *	http_end(&r);
 *
 * Two readers of one stream must never disagree on where a request ends. So what other servers repair is refused: a
 * line that ends without CR LF, a header that goes on in the next line, a space before a colon, two Content-Length, two
 * Host, Content-Length and Transfer-Encoding, a coding other than chunked, a sign or 0x in a length, extensions of
 * chunks, trailers. evhttp of libevent 2.1 takes most of these, which is why only its sockets and timers are used.
 * Knows no socket and no clock.
 */
#ifndef ATLAS_HTTP_READ_H
#define ATLAS_HTTP_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_MAX_FIELDS = 100 };

typedef struct HttpLimits { size_t head_bytes, body_bytes; } HttpLimits;

typedef enum HttpState {
	HTTP_IDLE, /* no byte of the request yet */
	HTTP_HEAD, /* reads the request line and the header fields */
	HTTP_BODY,
	HTTP_DONE, /* the request is whole */
	HTTP_BAD   /* the stream cannot be read any further: status and why */
} HttpState;

typedef struct HttpRequest { /* texts lie in the reader, each with a final NUL; NULL = absent */
	const char *method, *path, *query; /* path: as it was sent, without the query */
	int minor;                         /* of HTTP/1.minor */
	const char *host, *authorization, *api_key, *origin, *request_id;
	bool keep_alive, expects_continue;
	char *body; /* [n_body] and a final NUL; NULL = none */
	size_t n_body;
} HttpRequest;

typedef struct HttpReader {
	HttpLimits limits;
	HttpState state;
	int status;      /* of HTTP_BAD: 400, 408, 413, 417, 431, 501, 505 or 500 without memory */
	const char *why; /* static */
	HttpRequest request;
	/* private */
	char *head;
	size_t n_head, cap_head, cap_body;
	uint64_t left; /* bytes that are missing of the body or the chunk */
	bool is_chunked;
	int chunk_state, n_line;
	char line[24];
} HttpReader;

void http_start(HttpReader *r, HttpLimits limits);
bool http_is_open(const HttpReader *r); /* does it want more bytes? */
/* Takes bytes up to the end of the request at most; returns how many. Time is linear in n. */
size_t http_feed(HttpReader *r, const char *bytes, size_t n);
/* Takes the body away from the request; free() by the caller. */
char *http_take_body(HttpReader *r, size_t *n);
void http_end(HttpReader *r);

/* Undoes %XX in place. False: a wrong escape, or %00. */
bool http_unescape(char *text);
const char *http_reason(int status); /* "Not Found" */

#endif
