/* guard.c - see guard.h.
 *
 * A page of a stranger in a browser on this machine reaches the loopback. Its host name, made to resolve to 127.0.0.1,
 * is then in Host (DNS rebinding); a request to 127.0.0.1 itself has the page's Origin. Both are refused. */
#include "artifacts/hash.h"
#include "runtime/serve/guard.h"

#include <string.h>
#include <strings.h>

/* Keys ------------------------------------------------------------ */

bool guard_read_keys(Guard *g, const char *path, char *why, size_t why_bytes)
{
	char line[GUARD_MAX_KEY_BYTES + 2];
	FILE *f = fopen(path, "re");
	if (!f)
		return snprintf(why, why_bytes, "%s: cannot be read", path), false;
	why[0] = 0;
	for (int n = 1; !why[0] && fgets(line, sizeof line, f); n++) {
		size_t length = strcspn(line, "\r\n");
		if (!line[length] && length == sizeof line - 1)
			snprintf(why, why_bytes, "%s:%d: a key has at most %d bytes", path, n, GUARD_MAX_KEY_BYTES);
		line[length] = 0;
		if (!length || line[0] == '#')
			continue;
		if (strpbrk(line, " \t"))
			snprintf(why, why_bytes, "%s:%d: a key has no blanks", path, n);
		else if (g->n_keys == GUARD_MAX_KEYS)
			snprintf(why, why_bytes, "%s:%d: expected at most %d keys", path, n, GUARD_MAX_KEYS);
		else
			sha256_of(line, length, g->keys[g->n_keys++]);
	}
	explicit_bzero(line, sizeof line);
	if (!why[0] && ferror(f))
		snprintf(why, why_bytes, "%s: cannot be read", path);
	fclose(f);
	if (!why[0] && !g->n_keys)
		snprintf(why, why_bytes, "%s: there is no key in it", path);
	return !why[0];
}

/* All digests are compared, each to its end. */
static bool is_key(const Guard *g, const char *text)
{
	uint8_t digest[32];
	unsigned found = 0;
	sha256_of(text, strlen(text), digest);
	for (int i = 0; i < g->n_keys; i++) {
		unsigned differs = 0;
		for (int k = 0; k < 32; k++)
			differs |= (unsigned)(g->keys[i][k] ^ digest[k]);
		found |= (differs - 1) >> 31; /* 1 when nothing differs */
	}
	return found;
}

bool guard_check_key(const Guard *g, const HttpRequest *q, ApiError *e)
{
	const char *bearer = q->authorization;
	if (!g->n_keys)
		return true;
	if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0)
		bearer += 7 + strspn(bearer + 7, " ");
	else
		bearer = NULL;
	if (!bearer && !q->api_key)
		api_refuse(e, 401, NULL, "an API key is required: Authorization: Bearer KEY");
	else if ((bearer && !is_key(g, bearer)) || (q->api_key && !is_key(g, q->api_key)))
		api_refuse(e, 401, NULL, "the API key is wrong");
	else
		return true;
	e->code = "invalid_api_key";
	return false;
}

/* Names ------------------------------------------------------------ */

/* Length of the host in HOST[:PORT] or [ADDRESS][:PORT]; 0: it is neither. */
static size_t host_length(const char *text)
{
	const char *end = text[0] == '[' ? strchr(text, ']') : text + strcspn(text, ":");
	if (!end)
		return 0;
	end += text[0] == '[';
	if (*end == ':' && strspn(end + 1, "0123456789") != strlen(end + 1))
		return 0;
	return !*end || *end == ':' ? (size_t)(end - text) : 0;
}

static bool is_host(const char *text, size_t n, const char *name)
{
	return strlen(name) == n && strncasecmp(text, name, n) == 0;
}

static bool is_own_host(const Guard *g, const char *text)
{
	static const char *const own[] = {"localhost", "127.0.0.1", "[::1]"};
	const size_t n = host_length(text);
	bool found = false;
	for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
		found |= is_host(text, n, own[i]);
	for (int i = 0; i < g->n_hosts; i++)
		found |= is_host(text, n, g->hosts[i]);
	return n && found;
}

bool guard_check_names(const Guard *g, const HttpRequest *q, ApiError *e)
{
	const char *origin = q->origin, *host = q->host ? q->host : "";
	if (g->checks_host && q->host && !is_own_host(g, host))
		return api_refuse(e, 403, NULL, "Host %.200s is not this server: --allow-host names another", host);
	if (!origin || (g->origin && strcmp(origin, g->origin) == 0))
		return true;
	const char *at = strstr(origin, "://");
	if (at && strcmp(at + 3, host) == 0) /* a page that this server gave */
		return true;
	return api_refuse(e, 403, NULL, "Origin %.200s may not use this server: --allow-origin names one that may", origin);
}
