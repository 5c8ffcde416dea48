/* page.c - the frame of a page, and text that is safe in it. */
#include "runtime/cli/page/page.h"
#include "artifacts/hash.h"
#include "artifacts/json_put.h"

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

const char *page_text_of(const char *name)
{
	for (int i = 0; i < n_page_text; i++)
		if (strcmp(page_text[i].name, name) == 0)
			return page_text[i].text;
	return "";
}

/* What a policy compares: the SHA-256 of all between the tags, in base 64. */
static void put_hash(FILE *out, const char *begin, const char *text, const char *end)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	uint8_t hash[33] = {0};
	Sha256 h;
	sha256_start(&h);
	sha256_add(&h, begin, strlen(begin));
	sha256_add(&h, text, strlen(text));
	sha256_add(&h, end, strlen(end));
	sha256_end(&h, hash);
	fputs("'sha256-", out);
	for (int i = 0; i < 33; i += 3) {
		const unsigned three = (unsigned)hash[i] << 16 | (unsigned)hash[i + 1] << 8 | hash[i + 2];
		for (int k = 18; k >= 0; k -= 6)
			fputc(i == 30 && k == 0 ? '=' : digits[three >> k & 63], out);
	}
	fputc('\'', out);
}

/* So that an XML parser takes what is between the tags as text. */
static const char css_begin[] = "/*<![CDATA[*/\n", css_end[] = "/*]]>*/",
	js_begin[] = "//<![CDATA[\n", js_end[] = "//]]>\n";

/* " 'sha256-...'" of page.EXTENSION and MORE.EXTENSION. */
static void put_hashes(FILE *out, const char *more, const char *extension, const char *begin, const char *end)
{
	const char *const names[] = {"page", more};
	char name[32];
	for (int i = 0; i < 2 && names[i]; i++) {
		snprintf(name, sizeof name, "%s.%s", names[i], extension);
		fputc(' ', out);
		put_hash(out, begin, page_text_of(name), end);
	}
}

/* <ELEMENT> of page.EXTENSION and MORE.EXTENSION. */
static void put_texts(
	FILE *out, const char *element, const char *more, const char *extension, const char *begin, const char *end)
{
	const char *const names[] = {"page", more};
	char name[32];
	for (int i = 0; i < 2 && names[i]; i++) {
		snprintf(name, sizeof name, "%s.%s", names[i], extension);
		fprintf(out, "<%s>%s%s%s</%s>\n", element, begin, page_text_of(name), end, element);
	}
}

void page_open(FILE *out, const char *title, const char *more)
{
	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src", out);
	put_hashes(out, more, "css", css_begin, css_end);
	fputs("; script-src", out);
	put_hashes(out, more, "js", js_begin, js_end);
	fprintf(out, "; %sbase-uri 'none'; form-action 'none'\"/>\n", more ? "connect-src 'self'; " : "");
	fputs("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
		"<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>", out);
	page_put(out, title);
	fputs("</title>\n", out);
	put_texts(out, "style", more, "css", css_begin, css_end);
	fputs("</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to content</a>\n<header><h1>", out);
	page_put(out, title);
	fputs("</h1><button type=\"button\" id=\"theme\" hidden=\"hidden\"></button></header>\n", out);
}

void page_close(FILE *out, const char *footer, const char *more)
{
	fputs("<footer><p>", out);
	page_put(out, footer);
	fputs("</p></footer>\n", out);
	put_texts(out, "script", more, "js", js_begin, js_end);
	fputs("</body>\n</html>\n", out);
}

/* Of the code point at p, which has n bytes: one that is not seen, or that turns the text around it. */
static bool is_hidden(const unsigned char *p, size_t n, unsigned *code)
{
	*code = n == 1 ? p[0] : n == 2 ? (p[0] & 31u) << 6 | (p[1] & 63u)
		: n == 3 ? (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u)
		: (p[0] & 7u) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
	return *code < 0x20 || (*code >= 0x7f && *code < 0xa0) || *code == 0xad || *code == 0x61c ||
		(*code >= 0x200b && *code <= 0x200f) || (*code >= 0x2028 && *code <= 0x202e) ||
		(*code >= 0x2060 && *code <= 0x206f) || *code == 0xfeff || (*code & 0xfffe) == 0xfffe ||
		(*code >= 0xfdd0 && *code <= 0xfdef) || *code >= 0xe0000;
}

static void put(FILE *out, const char *text, char space)
{
	const unsigned char *p = (const unsigned char *)text;
	unsigned code;
	for (size_t left = strlen(text), n; left; p += n, left -= n) {
		n = json_code_point(p, left);
		if (n == 0) {
			n = 1;
			fputs("\xef\xbf\xbd", out);
		} else if (is_hidden(p, n, &code)) {
			fprintf(out, "\\u%04x", code);
		} else {
			switch (*p) {
			case '<': fputs("&lt;", out); break;
			case '>': fputs("&gt;", out); break;
			case '&': fputs("&amp;", out); break;
			case '"': fputs("&quot;", out); break;
			case '\'': fputs("&#39;", out); break;
			case ' ': fputc(space, out); break;
			default: fwrite(p, 1, n, out);
			}
		}
	}
}

void page_put(FILE *out, const char *text) { put(out, text, ' '); }
void page_put_id(FILE *out, const char *text) { put(out, text, '_'); }

void page_printf(FILE *out, const char *fmt, ...)
{
	char text[1024];
	va_list list;
	va_start(list, fmt);
	vsnprintf(text, sizeof text, fmt, list);
	va_end(list);
	page_put(out, text);
}

void page_share(FILE *out, double share, bool is_bytes)
{
	fprintf(out, "<span class=\"share\"><svg class=\"%s\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" "
		"aria-hidden=\"true\"><rect width=\"%.1f\" height=\"10\"/></svg> <span>%.1f&#160;%%</span></span>",
		is_bytes ? "bar bytes" : "bar",
		100 * share, 100 * share);
}

void page_bytes(FILE *out, double bytes)
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
	int i = 0;
	for (; i < 4 && bytes >= 999.95; i++)
		bytes /= 1000;
	fprintf(out, "%.*f&#160;%s", i == 0 ? 0 : bytes < 9.995 ? 2 : 1, bytes, units[i]);
}

void page_fact(FILE *out, const char *name) { fprintf(out, "<div><dt>%s</dt><dd>", name); }
void page_fact_end(FILE *out) { fputs("</dd></div>\n", out); }

void page_hash(FILE *out, const unsigned char *hash)
{
	fputs("<code>", out);
	hex_put(out, hash, 32);
	fputs("</code>", out);
}
