/* json_put.c - strings and fields of JSON documents. */
#include "artifacts/json_put.h"

void json_put(const char *text, FILE *out)
{
	fputc('"', out);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20)
			fprintf(out, "\\u%04x", c);
		else
			fputc(c, out);
	}
	fputc('"', out);
}

void json_put_field(const char *name, const char *text, FILE *out)
{
	fprintf(out, "\"%s\":", name);
	json_put(text, out);
}

void json_put_hash(const unsigned char hash[32], FILE *out)
{
	fputc('"', out);
	for (int i = 0; i < 32; i++)
		fprintf(out, "%02x", hash[i]);
	fputc('"', out);
}
