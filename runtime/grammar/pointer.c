/* pointer.c - JSON pointers as parts of a URI: "#/$defs/a~1b", "#/prefixItems/0", "#/$defs/50%25". */
#include "runtime/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

static int hex_digit(char c)
{
	const char lower = (char)(c | 32);
	return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Decodes %XX in place; false: it is not written so, or has a zero byte. */
static bool decode_percent(char *text)
{
	char *to = text;
	for (const char *c = text; *c; c++) {
		if (*c != '%') {
			*to++ = *c;
			continue;
		}
		const int high = hex_digit(c[1]), low = high < 0 ? -1 : hex_digit(c[2]);
		if (low < 0 || (high == 0 && low == 0))
			return false;
		*to++ = (char)(high << 4 | low);
		c += 2;
	}
	*to = 0;
	return true;
}

/* Decodes ~0 and ~1 in place. */
static bool decode_tilde(char *key)
{
	char *to = key;
	for (const char *c = key; *c; c++) {
		if (*c == '~' && c[1] != '0' && c[1] != '1')
			return false;
		*to++ = (char)(*c != '~' ? *c : *++c == '0' ? '~' : '/');
	}
	*to = 0;
	return true;
}

static json_t *element(json_t *list, const char *key)
{
	const size_t n = strspn(key, "0123456789");
	if (n == 0 || n > 9 || key[n] || (n > 1 && *key == '0'))
		return NULL;
	return json_array_get(list, strtoul(key, NULL, 10));
}

json_t *grammar_at(json_t *root, const char *pointer)
{
	if (pointer[0] != '#' || (pointer[1] && pointer[1] != '/'))
		return NULL;
	char *text = strdup(pointer + 1), *next = text;
	json_t *at = text && decode_percent(text) ? root : NULL;
	while (at && next && *next == '/') {
		char *key = next + 1;
		next = strchr(key, '/');
		if (next)
			*next = 0;
		at = !decode_tilde(key) ? NULL : json_is_array(at) ? element(at, key) : json_object_get(at, key);
		if (next)
			*next = '/';
	}
	free(text);
	return at;
}
