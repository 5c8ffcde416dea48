/* guard.h - who may ask: API keys, and names of hosts and origins that a browser may be led to. */
#ifndef ATLAS_GUARD_H
#define ATLAS_GUARD_H

#include "runtime/serve/api.h"
#include "runtime/serve/http_read.h"

enum { GUARD_MAX_KEYS = 256, GUARD_MAX_KEY_BYTES = 512, GUARD_MAX_HOSTS = 16 };

typedef struct Guard {
	uint8_t keys[GUARD_MAX_KEYS][32]; /* SHA-256 of each: a key is in memory no longer than it is read */
	int n_keys;                       /* 0: none is asked for */
	bool checks_host;
	const char *hosts[GUARD_MAX_HOSTS]; int n_hosts; /* besides localhost and addresses of the loopback */
	const char *origin;               /* that may read answers from a browser; NULL = none */
} Guard;

/* A key a line; empty lines and those that begin with # do not count. False with a sentence. */
bool guard_read_keys(Guard *g, const char *path, char *why, size_t why_bytes);

/* Does the request name this server, and an origin that may use it? False after filling `e`. */
bool guard_check_names(const Guard *g, const HttpRequest *q, ApiError *e);
/* Does it bring a key? In time that does not depend on how much of a key is right. */
bool guard_check_key(const Guard *g, const HttpRequest *q, ApiError *e);

#endif
