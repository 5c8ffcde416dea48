/* json_put.c - the pieces of JSON that reports and verbs print. */
#include "artifacts/json_put.h"
#include "artifacts/hash.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* The table of Unicode 15, 3.9 D92. */
size_t json_code_point(const unsigned char *p, size_t n)
{
	if (p[0] < 0x80)
		return 1;
	size_t length = p[0] >= 0xc2 && p[0] < 0xe0 ? 2
		: p[0] >= 0xe0 && p[0] < 0xf0           ? 3
		: p[0] >= 0xf0 && p[0] < 0xf5           ? 4
												: 0;
	if (!length || length > n)
		return 0;
	unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
	unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
	if (p[1] < low || p[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if (p[i] < 0x80 || p[i] > 0xbf)
			return 0;
	return length;
}

void json_text(FILE *out, const char *text, size_t n)
{
	const unsigned char *p = (const unsigned char *)text;
	fputc('"', out);
	for (size_t i = 0; i < n;) {
		size_t length = json_code_point(p + i, n - i);
		if (length == 0)
			fputs("\xef\xbf\xbd", out);
		else if (p[i] == '"' || p[i] == '\\')
			fprintf(out, "\\%c", p[i]);
		else if (p[i] == '\n')
			fputs("\\n", out);
		else if (p[i] < 0x20 || p[i] == 0x7f)
			fprintf(out, "\\u%04x", p[i]);
		else
			fwrite(p + i, 1, length, out);
		i += length ? length : 1;
	}
	fputc('"', out);
}

void json_quoted(FILE *out, const char *text) { json_text(out, text, strlen(text)); }

void json_number(FILE *out, double value)
{
	if (isfinite(value))
		fprintf(out, "%.9g", value);
	else
		fputs("null", out);
}

void json_field(FILE *out, const char *name, const char *text)
{
	fprintf(out, "\"%s\":", name);
	json_quoted(out, text);
}

void json_fields(FILE *out, ...)
{
	va_list list;
	va_start(list, out);
	for (const char *name = va_arg(list, const char *); name;) {
		json_field(out, name, va_arg(list, const char *));
		if ((name = va_arg(list, const char *)))
			fputc(',', out);
	}
	va_end(list);
}

void json_hash(FILE *out, const unsigned char hash[32])
{
	fputc('"', out);
	hex_put(out, hash, 32);
	fputc('"', out);
}
