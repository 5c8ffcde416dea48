/* http_read.c - see http_read.h. The head is gathered until its empty line and read as a whole; the body is copied as
 * it comes, with a buffer that grows by what came, never by what a length promises. */
#include "runtime/serve/http_read.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CHUNK_SIZE, CHUNK_DATA, CHUNK_CR, CHUNK_LF, CHUNK_LAST_CR, CHUNK_LAST_LF };

void http_start(HttpReader *r, HttpLimits limits) { *r = (HttpReader){.limits = limits}; }

bool http_is_open(const HttpReader *r) { return r->state < HTTP_DONE; }

static bool refuse(HttpReader *r, int status, const char *why)
{
	r->state = HTTP_BAD;
	r->status = status;
	r->why = why;
	return false;
}

/* Head ------------------------------------------------------------ */

static bool is_token_char(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		(c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool read_request_line(HttpReader *r, char *line)
{
	HttpRequest *q = &r->request;
	char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
	if (!version || target == line)
		return refuse(r, 400, "the request line is not METHOD TARGET HTTP/1.1");
	*target++ = 0;
	*version++ = 0;
	for (char *p = line; *p; p++)
		if (!is_token_char((unsigned char)*p))
			return refuse(r, 400, "the method is not a token");
	for (char *p = target; *p; p++)
		if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f || *p == '#')
			return refuse(r, 400, "the target has a character that is not allowed in it");
	if (*target != '/')
		return refuse(r, 400, "the target must begin with /");
	if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
		return strncmp(version, "HTTP/", 5) == 0 ? refuse(r, 505, "the version must be HTTP/1.1 or HTTP/1.0")
												 : refuse(r, 400, "the request line is not METHOD TARGET HTTP/1.1");
	q->method = line;
	q->path = target;
	q->minor = version[7] - '0';
	q->keep_alive = q->minor == 1;
	char *query = strchr(target, '?');
	if (query) {
		*query = 0;
		q->query = query + 1;
	}
	return true;
}

static bool once(HttpReader *r, const char **place, const char *value, const char *why)
{
	if (*place)
		return refuse(r, 400, why);
	*place = value;
	return true;
}

static bool read_length(HttpReader *r, const char *text)
{
	uint64_t n = 0;
	if (!*text)
		return refuse(r, 400, "Content-Length is empty");
	for (const char *p = text; *p; p++) {
		if (*p < '0' || *p > '9')
			return refuse(r, 400, "Content-Length is not a whole number");
		if (n > (UINT64_MAX - 9) / 10)
			return refuse(r, 413, "the body is larger than the limit");
		n = n * 10 + (uint64_t)(*p - '0');
	}
	r->left = n;
	return true;
}

/* Is `word` among the elements of a list with commas? */
static bool lists(const char *list, const char *word)
{
	const size_t n = strlen(word);
	while (*list) {
		list += strspn(list, " \t,");
		const size_t length = strcspn(list, " \t,");
		if (length == n && strncasecmp(list, word, n) == 0)
			return true;
		list += length;
	}
	return false;
}

static bool read_field(HttpReader *r, char *name, const char *value, const char **length, const char **coding)
{
	HttpRequest *q = &r->request;
	if (strcasecmp(name, "host") == 0)
		return once(r, &q->host, value, "there are two Host");
	if (strcasecmp(name, "content-length") == 0)
		return once(r, length, value, "there are two Content-Length");
	if (strcasecmp(name, "transfer-encoding") == 0)
		return once(r, coding, value, "there are two Transfer-Encoding");
	if (strcasecmp(name, "authorization") == 0)
		return once(r, &q->authorization, value, "there are two Authorization");
	if (strcasecmp(name, "x-api-key") == 0)
		return once(r, &q->api_key, value, "there are two x-api-key");
	if (strcasecmp(name, "origin") == 0)
		return once(r, &q->origin, value, "there are two Origin");
	if (strcasecmp(name, "x-request-id") == 0)
		return once(r, &q->request_id, value, "there are two x-request-id");
	if (strcasecmp(name, "connection") == 0) {
		if (lists(value, "close"))
			q->keep_alive = false;
		else if (lists(value, "keep-alive") && q->minor == 0)
			q->keep_alive = true;
	}
	if (strcasecmp(name, "expect") == 0) {
		if (strcasecmp(value, "100-continue") != 0)
			return refuse(r, 417, "Expect is not 100-continue");
		q->expects_continue = q->minor == 1;
	}
	return true;
}

/* One header line without its CR LF. */
static bool read_header(HttpReader *r, char *line, const char **length, const char **coding)
{
	char *colon = strchr(line, ':');
	if (*line == ' ' || *line == '\t')
		return refuse(r, 400, "a header field goes on in the next line");
	if (!colon || colon == line)
		return refuse(r, 400, "a header line has no name before a colon");
	*colon = 0;
	for (char *p = line; *p; p++)
		if (!is_token_char((unsigned char)*p))
			return refuse(r, 400, "the name of a header field is not a token");
	char *value = colon + 1 + strspn(colon + 1, " \t"), *end = value + strlen(value);
	while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
		*--end = 0;
	for (char *p = value; *p; p++)
		if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f)
			return refuse(r, 400, "a header field has a control character");
	return read_field(r, line, value, length, coding);
}

static bool read_head(HttpReader *r)
{
	const char *length = NULL, *coding = NULL;
	char *line = r->head, *end = r->head + r->n_head - 2; /* of the last line, before the empty one */
	if (memchr(r->head, 0, r->n_head))
		return refuse(r, 400, "the head has a NUL");
	for (int n = 0; line < end; n++) {
		char *stop = memchr(line, '\n', (size_t)(end - line));
		if (!stop || stop == line || stop[-1] != '\r' || memchr(line, '\r', (size_t)(stop - line)) != stop - 1)
			return refuse(r, 400, "a line of the head does not end in CR LF");
		stop[-1] = 0;
		if (n > HTTP_MAX_FIELDS)
			return refuse(r, 431, "there are more than 100 header fields");
		if (n ? !read_header(r, line, &length, &coding) : !read_request_line(r, line))
			return false;
		line = stop + 1;
	}
	if (!r->request.method)
		return refuse(r, 400, "a line of the head does not end in CR LF");
	if (!r->request.host && r->request.minor == 1)
		return refuse(r, 400, "there is no Host");
	if (length && coding)
		return refuse(r, 400, "there are both Content-Length and Transfer-Encoding");
	if (coding && strcasecmp(coding, "chunked") != 0)
		return refuse(r, 501, "Transfer-Encoding is not chunked");
	if (coding && r->request.minor == 0)
		return refuse(r, 400, "HTTP/1.0 has no Transfer-Encoding");
	if (length && !read_length(r, length))
		return false;
	if (r->left > r->limits.body_bytes)
		return refuse(r, 413, "the body is larger than the limit");
	r->is_chunked = coding != NULL;
	r->state = r->is_chunked || r->left ? HTTP_BODY : HTTP_DONE;
	return true;
}

/* Where the head ends: after the first empty line, at or after `from`; 0 = it does not yet. A bare LF before another
 * ends the gathering too, so that it is refused at once. */
static size_t head_end(const HttpReader *r, size_t from)
{
	for (size_t i = from; i < r->n_head; i++)
		if (r->head[i] == '\n' && i &&
			(r->head[i - 1] == '\n' || (i > 1 && r->head[i - 1] == '\r' && r->head[i - 2] == '\n')))
			return i + 1;
	return 0;
}

static size_t feed_head(HttpReader *r, const char *bytes, size_t n)
{
	const size_t before = r->n_head, room = r->limits.head_bytes - before;
	size_t take = n < room ? n : room;
	if (before + take > r->cap_head) {
		size_t cap = (before + take) * 2 < r->limits.head_bytes ? (before + take) * 2 : r->limits.head_bytes;
		char *head = realloc(r->head, cap + 1);
		if (!head)
			return refuse(r, 500, "no memory"), n;
		r->head = head;
		r->cap_head = cap;
	}
	memcpy(r->head + before, bytes, take);
	r->n_head += take;
	const size_t end = head_end(r, before);
	if (!end) {
		if (r->n_head == r->limits.head_bytes)
			refuse(r, 431, "the head is larger than the limit");
		return take;
	}
	r->n_head = end;
	read_head(r);
	return end - before;
}

/* Body ------------------------------------------------------------ */

static bool add_body(HttpReader *r, const char *bytes, size_t n)
{
	HttpRequest *q = &r->request;
	if (q->n_body + n > r->cap_body) {
		const size_t cap = (q->n_body + n) * 2;
		char *body = realloc(q->body, cap + 1);
		if (!body)
			return refuse(r, 500, "no memory");
		q->body = body;
		r->cap_body = cap;
	}
	memcpy(q->body + q->n_body, bytes, n);
	q->n_body += n;
	q->body[q->n_body] = 0;
	return true;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* A chunk's length: hexadecimal digits alone, at most 16. */
static bool read_chunk_size(HttpReader *r)
{
	uint64_t n = 0;
	if (r->n_line == 0)
		return refuse(r, 400, "a chunk has no length");
	for (int i = 0; i < r->n_line; i++) {
		const int digit = hex_digit(r->line[i]);
		if (digit < 0)
			return refuse(r, 400, "the length of a chunk is not hexadecimal");
		n = n * 16 + (uint64_t)digit;
	}
	if (n > r->limits.body_bytes || r->request.n_body + n > r->limits.body_bytes)
		return refuse(r, 413, "the body is larger than the limit");
	r->left = n;
	r->n_line = 0;
	r->chunk_state = n ? CHUNK_DATA : CHUNK_LAST_CR;
	return true;
}

/* A byte between the chunks' data. */
static bool feed_frame(HttpReader *r, char c)
{
	switch (r->chunk_state) {
	case CHUNK_SIZE:
		if (c == '\n' && r->n_line && r->line[r->n_line - 1] == '\r') {
			r->n_line--;
			return read_chunk_size(r);
		}
		if (r->n_line == 17)
			return refuse(r, 400, "the length of a chunk is not hexadecimal");
		r->line[r->n_line++] = c;
		return true;
	case CHUNK_CR:
	case CHUNK_LAST_CR:
		if (c != '\r')
			return refuse(r, 400, r->chunk_state == CHUNK_CR ? "a chunk does not end in CR LF" : "there are trailers");
		r->chunk_state++;
		return true;
	default:
		if (c != '\n')
			return refuse(r, 400, "a chunk does not end in CR LF");
		if (r->chunk_state == CHUNK_LAST_LF)
			r->state = HTTP_DONE;
		r->chunk_state = CHUNK_SIZE;
		return true;
	}
}

static size_t feed_body(HttpReader *r, const char *bytes, size_t n)
{
	if (r->is_chunked && r->chunk_state != CHUNK_DATA) {
		feed_frame(r, *bytes);
		return 1;
	}
	const size_t take = r->left < n ? (size_t)r->left : n;
	if (!add_body(r, bytes, take))
		return n;
	r->left -= take;
	if (r->left == 0 && r->is_chunked)
		r->chunk_state = CHUNK_CR;
	else if (r->left == 0)
		r->state = HTTP_DONE;
	return take;
}

size_t http_feed(HttpReader *r, const char *bytes, size_t n)
{
	size_t used = 0;
	while (used < n && http_is_open(r)) {
		if (r->state == HTTP_IDLE)
			r->state = HTTP_HEAD;
		used += r->state == HTTP_HEAD ? feed_head(r, bytes + used, n - used) : feed_body(r, bytes + used, n - used);
	}
	return used;
}

char *http_take_body(HttpReader *r, size_t *n)
{
	char *body = r->request.body;
	*n = r->request.n_body;
	r->request.body = NULL;
	r->request.n_body = r->cap_body = 0;
	return body;
}

void http_end(HttpReader *r)
{
	free(r->head);
	free(r->request.body);
	*r = (HttpReader){.limits = r->limits};
}

/* Words ------------------------------------------------------------ */

bool http_unescape(char *text)
{
	char *to = text;
	for (const char *p = text; *p; p++) {
		if (*p != '%') {
			*to++ = *p;
			continue;
		}
		const int high = hex_digit(p[1]), low = high < 0 ? -1 : hex_digit(p[2]);
		if (low < 0 || high * 16 + low == 0)
			return false;
		*to++ = (char)(high * 16 + low);
		p += 2;
	}
	*to = 0;
	return true;
}

const char *http_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {{200, "OK"}, {204, "No Content"}, {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"},
		{404, "Not Found"}, {405, "Method Not Allowed"}, {408, "Request Timeout"}, {413, "Content Too Large"},
		{417, "Expectation Failed"}, {429, "Too Many Requests"}, {431, "Request Header Fields Too Large"},
		{500, "Internal Server Error"}, {501, "Not Implemented"}, {503, "Service Unavailable"},
		{505, "HTTP Version Not Supported"}, {529, "Overloaded"}};
	for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	return "Unknown";
}
