/* key_file.c - Ed25519 keys out of PEM files.
 *
 * A key of this kind has one DER form (RFC 8410), so that it is compared, not parsed; whatever else is met is reported
 * by name, since a wrong key file is mostly a good one of another kind.
 */
#include "artifacts/sign.h"
#include "artifacts/why.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXT = 1 << 16, MOST_DER = 1 << 13, LABEL_BYTES = 48 };

typedef struct Pem {
	const char *at, *end;    /* of the text that is left */
	char label[LABEL_BYTES]; /* "PRIVATE KEY" */
	uint8_t der[MOST_DER];
	size_t n;
	char *why;
	size_t why_bytes;
} Pem;

#define refuse(p, ...) say_why((p)->why, (p)->why_bytes, __VA_ARGS__)

static const char *find(const Pem *p, const char *word)
{
	return memmem(p->at, (size_t)(p->end - p->at), word, strlen(word));
}

static int base64_value(char c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *d = c ? strchr(digits, c) : NULL;
	return d ? (int)(d - digits) : -1;
}

/* Up to `end`: digits by fours, the last four may end in one or two =. */
static bool decode_base64(Pem *p, const char *end)
{
	uint32_t bits = 0;
	int digits = 0, padding = 0;
	for (const char *s = p->at; s < end; s++) {
		if (*s == '\n' || *s == '\r' || *s == ' ' || *s == '\t')
			continue;
		int v = *s == '=' ? 0 : base64_value(*s);
		padding += *s == '=';
		if (v < 0 || padding > 2 || (padding && *s != '='))
			return refuse(p, "the text between BEGIN and END is not base64");
		bits = bits << 6 | (uint32_t)v;
		if (++digits % 4)
			continue;
		if (p->n + 3 > MOST_DER)
			return refuse(p, "the key is longer than an Ed25519 key can be");
		for (int i = 0; i < 3; i++)
			p->der[p->n++] = (uint8_t)(bits >> (16 - 8 * i));
	}
	if (digits % 4)
		return refuse(p, "the text between BEGIN and END is cut");
	p->n -= (size_t)padding;
	return true;
}

/* The first block of the file. */
static bool open_pem(Pem *p)
{
	static const char begin[] = "-----BEGIN ";
	char closing[LABEL_BYTES + 16];
	const char *at = find(p, begin);
	if (!at)
		return refuse(p, "not a key file: there is no line that starts with -----BEGIN");
	p->at = at + strlen(begin);
	const char *dashes = find(p, "-----"), *line = find(p, "\n");
	if (!dashes || !line || dashes > line || dashes - p->at >= LABEL_BYTES)
		return refuse(p, "not a key file: the line -----BEGIN has no end");
	snprintf(p->label, sizeof p->label, "%.*s", (int)(dashes - p->at), p->at);
	p->at = dashes + 5;
	snprintf(closing, sizeof closing, "-----END %s-----", p->label);
	const char *end = find(p, closing);
	return end ? decode_base64(p, end) : refuse(p, "the key file is cut: there is no line %s", closing);
}

/* What the key is instead, by the object identifier of its algorithm. */
static bool refuse_kind(Pem *p)
{
	static const struct { const char *name, *oid; size_t n; } kinds[] = {
		{"an RSA key", "\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01", 9},
		{"an RSA-PSS key", "\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a", 9},
		{"an elliptic-curve key", "\x2a\x86\x48\xce\x3d\x02\x01", 7}, {"a DSA key", "\x2a\x86\x48\xce\x38\x04\x01", 7},
		{"an X25519 key", "\x2b\x65\x6e", 3}, {"an Ed448 key", "\x2b\x65\x71", 3}};
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (memmem(p->der, p->n < 40 ? p->n : 40, kinds[i].oid, kinds[i].n))
			return refuse(p, "holds %s: expected an Ed25519 key", kinds[i].name);
	return refuse(p, "not the form of an Ed25519 key: it has %zu bytes", p->n);
}

static bool refuse_label(Pem *p, const char *expected)
{
	if (strcmp(p->label, "ENCRYPTED PRIVATE KEY") == 0)
		return refuse(p, "the key is encrypted: expected a plain one (openssl pkcs8 -topk8 -nocrypt writes it)");
	if (strcmp(p->label, "PRIVATE KEY") == 0)
		return refuse(p, "holds a private key: expected the public one (openssl pkey -pubout writes it)");
	if (strcmp(p->label, "PUBLIC KEY") == 0)
		return refuse(p, "holds a public key: expected the private one");
	return refuse(p, "holds \"%s\": expected \"%s\" with an Ed25519 key", p->label, expected);
}

/* PKCS #8, version 0, or version 1 with the public key after the private one, which must be its own. */
static bool take_private(Pem *p, PrivateKey *key)
{
	static const uint8_t head[] = {0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20};
	static const uint8_t public_head[] = {0x81, 0x21, 0x00};
	const uint8_t *d = p->der;
	bool is_plain = p->n == 48 && d[4] == 0, is_pair = p->n == 83 && d[4] == 1;
	if ((!is_plain && !is_pair) || d[0] != 0x30 || d[1] != p->n - 2 || d[2] != 0x02 || d[3] != 0x01 ||
		memcmp(d + 5, head, sizeof head) != 0)
		return refuse_kind(p);
	memcpy(key->seed, d + 16, sizeof key->seed);
	if (!key_derive(key))
		return refuse(p, "no memory for the key");
	if (is_pair && (memcmp(d + 48, public_head, sizeof public_head) != 0 ||
		memcmp(d + 51, key->public_key, sizeof key->public_key) != 0))
		return refuse(p, "the public key in it is not that of the private one");
	return true;
}

bool key_parse_private(const char *text, size_t n, PrivateKey *key, char *why, size_t why_bytes)
{
	Pem p = {.at = text, .end = text + n, .why = why, .why_bytes = why_bytes};
	bool ok = open_pem(&p) &&
		(strcmp(p.label, "PRIVATE KEY") == 0 ? take_private(&p, key) : refuse_label(&p, "PRIVATE KEY"));
	if (!ok)
		key_forget(key);
	explicit_bzero(p.der, sizeof p.der);
	return ok;
}

bool key_parse_public(const char *text, size_t n, uint8_t public_key[PUBLIC_KEY_BYTES], char *why, size_t why_bytes)
{
	Pem p = {.at = text, .end = text + n, .why = why, .why_bytes = why_bytes};
	if (!open_pem(&p))
		return false;
	if (strcmp(p.label, "PUBLIC KEY") != 0)
		return refuse_label(&p, "PUBLIC KEY");
	if (p.n != sizeof key_public_head + PUBLIC_KEY_BYTES ||
		memcmp(p.der, key_public_head, sizeof key_public_head) != 0)
		return refuse_kind(&p);
	memcpy(public_key, p.der + sizeof key_public_head, PUBLIC_KEY_BYTES);
	return true;
}

/* The caller forgets what is in text. */
static bool read_text(const char *path, char text[MOST_TEXT], size_t *n, char *why, size_t why_bytes)
{
	FILE *file = fopen(path, "rb");
	if (!file)
		return snprintf(why, why_bytes, "%s", strerror(errno)), false;
	setvbuf(file, NULL, _IONBF, 0); /* no copy of a key is left in a buffer */
	errno = 0;
	*n = fread(text, 1, MOST_TEXT, file);
	bool failed = ferror(file) != 0;
	int error = errno;
	fclose(file);
	if (failed)
		snprintf(why, why_bytes, "%s", strerror(error));
	else if (*n == MOST_TEXT)
		snprintf(why, why_bytes, "not a key file: it is too long");
	return !failed && *n < MOST_TEXT;
}

bool key_read_private(const char *path, PrivateKey *key, char *why, size_t why_bytes)
{
	char *text = malloc(MOST_TEXT);
	size_t n;
	if (!text)
		return snprintf(why, why_bytes, "no memory for the file"), false;
	bool ok = read_text(path, text, &n, why, why_bytes) && key_parse_private(text, n, key, why, why_bytes);
	explicit_bzero(text, MOST_TEXT);
	free(text);
	return ok;
}

bool key_read_public(const char *path, uint8_t public_key[PUBLIC_KEY_BYTES], char *why, size_t why_bytes)
{
	char *text = malloc(MOST_TEXT);
	size_t n;
	if (!text)
		return snprintf(why, why_bytes, "no memory for the file"), false;
	bool ok = read_text(path, text, &n, why, why_bytes) && key_parse_public(text, n, public_key, why, why_bytes);
	free(text);
	return ok;
}
