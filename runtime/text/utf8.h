/* utf8.h - one code point at a time, and ranges of bytes. */
#ifndef ATLAS_UTF8_H
#define ATLAS_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { UTF8_MAX = 4, UTF8_REPLACEMENT = 0xFFFD };

typedef struct TextRange { size_t begin, end; } TextRange; /* bytes [begin, end) of a text */

/* Looks at the bytes s[0, n), n > 0. Returns the length of the code point there (1 to 4) and
 * stores it; 0 when the bytes are a proper beginning of one that n cuts off; or -k when the
 * first k bytes are the longest part of a sequence that cannot be continued: one U+FFFD. */
static inline int utf8_read(const unsigned char *s, size_t n, uint32_t *cp)
{
	unsigned lead = s[0], low = 0x80, high = 0xBF;
	if (lead < 0x80)
		return *cp = lead, 1;
	if (lead < 0xC2 || lead > 0xF4)
		return -1;
	int len = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
	low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : low; /* shortest form only */
	high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : high; /* no surrogates, no 0x110000 */
	uint32_t v = lead & (0x7Fu >> len);
	for (int i = 1; i < len; i++) {
		if ((size_t)i == n)
			return 0;
		if (s[i] < low || s[i] > high)
			return -i;
		v = v << 6 | (s[i] & 0x3Fu);
		low = 0x80;
		high = 0xBF;
	}
	*cp = v;
	return len;
}

/* The same where the text is known to be valid UTF-8; still never reads past n. */
static inline size_t utf8_take(const unsigned char *s, size_t n, uint32_t *cp)
{
	if (s[0] < 0x80)
		return *cp = s[0], 1;
	int len = utf8_read(s, n, cp);
	if (len > 0)
		return (size_t)len;
	*cp = UTF8_REPLACEMENT;
	return len ? (size_t)-len : n;
}

/* Length of the code point that ends at s + n, n > 0. */
static inline size_t utf8_back(const unsigned char *s, size_t n)
{
	size_t k = 1;
	while (k < n && k < UTF8_MAX && (s[n - k] & 0xC0) == 0x80)
		k++;
	return k;
}

static inline int utf8_write(unsigned char *s, uint32_t cp)
{
	if (cp < 0x80)
		return s[0] = (unsigned char)cp, 1;
	if (cp < 0x800) {
		s[0] = (unsigned char)(0xC0 | cp >> 6);
		s[1] = (unsigned char)(0x80 | (cp & 0x3F));
		return 2;
	}
	if (cp < 0x10000) {
		s[0] = (unsigned char)(0xE0 | cp >> 12);
		s[1] = (unsigned char)(0x80 | (cp >> 6 & 0x3F));
		s[2] = (unsigned char)(0x80 | (cp & 0x3F));
		return 3;
	}
	s[0] = (unsigned char)(0xF0 | cp >> 18);
	s[1] = (unsigned char)(0x80 | (cp >> 12 & 0x3F));
	s[2] = (unsigned char)(0x80 | (cp >> 6 & 0x3F));
	s[3] = (unsigned char)(0x80 | (cp & 0x3F));
	return 4;
}

#endif
