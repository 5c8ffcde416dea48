/* msgpack_check.c - is this exactly one canonical MessagePack value?
 *
 * One loop over the bytes. An open array or map is a number of values still to come; the stack of these numbers
 * is as deep as the format allows. Every length is compared with the bytes that are left before it is believed (a
 * value takes at least one byte, so a count above the bytes left is a lie), and every number and length must
 * have its shortest form. So the reader that follows can walk the bytes without checks.
 */
#include "artifacts/reader.h"

#include <string.h>

enum { MAX_DEPTH = 16 };

typedef struct Scan {
	const uint8_t *p, *end;
	uint64_t left[MAX_DEPTH]; /* values still to come, innermost last */
	bool map[MAX_DEPTH];      /* left counts keys and values: even = a key comes */
	int depth;
} Scan;

/* Length of a valid UTF-8 sequence at p, 0 when there is none: no overlong forms, no surrogates. */
static int utf8_length(const uint8_t *p, const uint8_t *end)
{
	if (p[0] < 0x80)
		return 1;
	int n = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : (p[0] & 0xf0) == 0xe0 ? 3
		: p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : 0;
	if (n == 0 || end - p < n)
		return 0;
	for (int i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
	bool outside = (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf4 && p[1] > 0x8f);
	return overlong || outside ? 0 : n;
}

static const char *check_text(const uint8_t *p, uint64_t n)
{
	const uint64_t high = 0x8080808080808080, ones = 0x0101010101010101;
	for (const uint8_t *end = p + n; p < end;) {
		uint64_t word = high;
		if (end - p >= 8)
			memcpy(&word, p, 8);
		if (!((word | (word - ones)) & high)) { /* eight bytes of 1 to 127, as nearly all are */
			p += 8;
			continue;
		}
		int len = utf8_length(p, end);
		if (len == 0 || *p == 0)
			return len ? "a zero byte in a string" : "a string that is not UTF-8";
		p += len;
	}
	return NULL;
}

static const char *open_container(Scan *s, uint64_t values, bool is_map)
{
	if (values > (uint64_t)(s->end - s->p))
		return "a count beyond the end";
	if (values == 0)
		return NULL;
	if (s->depth == MAX_DEPTH)
		return "too deep";
	s->left[s->depth] = values;
	s->map[s->depth++] = is_map;
	return NULL;
}

/* An integer of n bytes after its tag: nothing shorter could hold it. */
static const char *check_number(uint8_t tag, uint64_t v, int n)
{
	if (tag <= 0xcf) /* unsigned; below 128 the tag itself is the number */
		return v <= (n == 1 ? 127 : UINT64_MAX >> (64 - 4 * n)) ? "a number not in its shortest form"
			: NULL;
	int64_t s = n == 8 ? (int64_t)v : (int64_t)(v << (64 - 8 * n)) >> (64 - 8 * n);
	int64_t reach = n == 1 ? -32 : -((int64_t)1 << (4 * n - 1)); /* the shorter form's lowest */
	return s >= reach ? "a number not in its shortest form" : NULL;
}

/* A string, bin, array or map whose length takes n bytes. */
static const char *check_sized(Scan *s, uint8_t tag, int n)
{
	if (s->end - s->p < n)
		return "a length beyond the end";
	uint64_t v = big_endian(s->p, n);
	s->p += n;
	bool is_bin = tag >= 0xc4 && tag <= 0xc6, is_text = tag >= 0xd9 && tag <= 0xdb;
	uint64_t shorter = is_text && n == 1 ? 31 : n == 1 ? 0 : n == 4 ? 65535
		: is_bin || is_text ? 255 : 15; /* largest length that a shorter form holds */
	if (v <= shorter && !(is_bin && n == 1))
		return "a length not in its shortest form";
	if (!is_bin && !is_text)
		return open_container(s, tag >= 0xde ? 2 * v : v, tag >= 0xde);
	if (v > (uint64_t)(s->end - s->p))
		return "a length beyond the end";
	const char *bad = is_text ? check_text(s->p, v) : NULL;
	s->p += v;
	return bad;
}

static const char *check_value(Scan *s, uint8_t tag)
{
	if (tag <= 0x7f || tag >= 0xe0 || tag == 0xc0 || tag == 0xc2 || tag == 0xc3)
		return NULL;
	if (tag <= 0x8f)
		return open_container(s, 2 * (uint64_t)(tag & 15), true);
	if (tag <= 0x9f)
		return open_container(s, tag & 15, false);
	if (tag <= 0xbf) {
		int n = tag & 31;
		if (s->end - s->p < n)
			return "a length beyond the end";
		s->p += n;
		return check_text(s->p - n, (uint64_t)n);
	}
	switch (tag) {
	case 0xc4: case 0xd9: return check_sized(s, tag, 1);
	case 0xc5: case 0xda: case 0xdc: case 0xde: return check_sized(s, tag, 2);
	case 0xc6: case 0xdb: case 0xdd: case 0xdf: return check_sized(s, tag, 4);
	case 0xca: case 0xcb: case 0xcc: case 0xcd: case 0xce: case 0xcf:
	case 0xd0: case 0xd1: case 0xd2: case 0xd3: {
		int n = tag <= 0xcb ? 4 << (tag - 0xca) : 1 << ((tag - 0xcc) & 3);
		if (s->end - s->p < n)
			return "a number beyond the end";
		s->p += n;
		return tag <= 0xcb ? NULL : check_number(tag, big_endian(s->p - n, n), n);
	}
	default: return "a type the format does not use";
	}
}

bool msgpack_check(const uint8_t *bytes, size_t n, size_t *at, const char **what)
{
	Scan s = {.p = bytes, .end = bytes + n, .left = {1}, .depth = 1};
	*what = NULL;
	while (s.depth > 0 && !*what) {
		*at = (size_t)(s.p - bytes);
		if (s.left[s.depth - 1] == 0) {
			s.depth--;
			continue;
		}
		if (s.p == s.end) {
			*what = "the value does not end";
			break;
		}
		uint8_t tag = *s.p++;
		bool is_key = s.map[s.depth - 1] && s.left[s.depth - 1] % 2 == 0;
		bool is_text = (tag >= 0xa0 && tag <= 0xbf) || (tag >= 0xd9 && tag <= 0xdb);
		s.left[s.depth - 1]--;
		*what = is_key && !is_text ? "a key that is not a string" : check_value(&s, tag);
	}
	if (!*what && s.p != s.end) {
		*at = (size_t)(s.p - bytes);
		*what = "bytes after the value";
	}
	return !*what;
}
