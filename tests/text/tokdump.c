/* tokdump - compiles a tokenizer and answers requests about it, for tests in Python.
 *
 *   tokdump DIR ROWS FILE  compiles DIR's tokenizer, writes the section to FILE and prints seconds:
 *                          compiling, opening
 *   tokdump FILE           opens a section and answers requests on stdin
 *
 * A request is: one byte kind, one byte options, uint32 length, payload; integers little-endian.
 *   'e' encode the payload; options 1 = add_special, 2 = parse_special; reply int32 n, n int32 ids,
 *       or a negative TokError as n
 *   'p' encode with spans: uint32 count, the spans as two uint32 each, then the text; options 1 = add_special
 *   'd' decode int32 ids at once; options 1 = skip_special; reply int32 n, n bytes
 *   's' the same through a stream; reply int32 chunks, then each as int32 n, n bytes
 * Diagnostics go to stderr as `FILE:LINE:COL: error[CODE]: TEXT`; the exit code is that of the first.
 */
#include "compiler/read/family.h"
#include "compiler/tokenizer/read_tokenizer.h"
#include "runtime/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int print_diags(const Diags *d)
{
	int code = EXIT_INTERNAL;
	for (int i = d->n - 1; i >= 0; i--)
		if (!d->list[i].is_note)
			code = code_exit(d->list[i].code);
	for (int i = 0; i < d->n; i++) {
		const Diag *o = &d->list[i];
		fprintf(stderr, "%s:", o->at.file);
		if (o->at.line)
			fprintf(stderr, "%d:%d:", o->at.line, o->at.col);
		fprintf(stderr, " %s[%s]: %s\n", o->is_note ? "note" : "error", code_name(o->code), o->text);
	}
	return code;
}

static void put(const void *p, size_t n)
{
	if (n && fwrite(p, 1, n, stdout) != n)
		exit(EXIT_ENVIRONMENT);
}

static void put_int(int64_t v)
{
	int32_t n = (int32_t)v;
	put(&n, sizeof n);
}

static void answer_encode(const Tok *t, const char *text, size_t n, int options)
{
	int count = tok_encode(t, text, n, options & 1, options & 2, NULL, 0);
	int32_t *ids = malloc(sizeof *ids * (size_t)(count > 0 ? count : 1));
	if (!ids || (count > 0 && tok_encode(t, text, n, options & 1, options & 2, ids, count) != count))
		exit(EXIT_INTERNAL);
	put_int(count);
	put(ids, sizeof *ids * (size_t)(count > 0 ? count : 0));
	free(ids);
}

static void answer_spans(const Tok *t, const char *payload, size_t n, int options)
{
	uint32_t n_spans, at[2];
	memcpy(&n_spans, payload, sizeof n_spans);
	const size_t head = sizeof n_spans + n_spans * sizeof at;
	TextRange *spans = malloc(sizeof *spans * (n_spans + 1));
	int32_t *ids = malloc(sizeof *ids * (n + 64));
	if (!spans || !ids || head > n)
		exit(EXIT_INTERNAL);
	for (uint32_t i = 0; i < n_spans; i++) {
		memcpy(at, payload + sizeof n_spans + i * sizeof at, sizeof at);
		spans[i] = (TextRange){at[0], at[1]};
	}
	int count = tok_encode_spans(t, payload + head, n - head, options & 1, spans, n_spans, ids, (int)n + 64);
	put_int(count);
	put(ids, sizeof *ids * (size_t)(count > 0 ? count : 0));
	free(spans);
	free(ids);
}

static void answer_decode(const Tok *t, const int32_t *ids, size_t n, int options)
{
	int64_t size = tok_decode(t, ids, n, options & 1, NULL, 0);
	char *out = malloc(size > 0 ? (size_t)size : 1);
	if (!out || tok_decode(t, ids, n, options & 1, out, (size_t)size) != size)
		exit(EXIT_INTERNAL);
	put_int(size);
	put(out, (size_t)size);
	free(out);
}

static void answer_stream(const Tok *t, const int32_t *ids, size_t n, int options)
{
	TokStream s;
	const char *text;
	size_t k;
	tok_stream_start(&s, t, options & 1);
	put_int((int64_t)n + 1);
	for (size_t i = 0; i <= n; i++) {
		if (i < n ? tok_stream_push(&s, ids[i], &text, &k) : tok_stream_finish(&s, &text, &k))
			exit(EXIT_INTERNAL);
		put_int((int64_t)k);
		put(text, k);
	}
	tok_stream_free(&s);
}

static int serve(const Tok *t)
{
	unsigned char head[6];
	while (fread(head, 1, sizeof head, stdin) == sizeof head) {
		uint32_t n;
		memcpy(&n, head + 2, sizeof n);
		char *payload = malloc(n ? n : 1); /* of the exact size, for sanitizers */
		if (!payload || fread(payload, 1, n, stdin) != n)
			return EXIT_ENVIRONMENT;
		if (head[0] == 'p')
			answer_spans(t, payload, n, head[1]);
		else if (head[0] == 'e')
			answer_encode(t, payload, n, head[1]);
		else if (head[0] == 'd')
			answer_decode(t, (const int32_t *)payload, n / 4, head[1]);
		else
			answer_stream(t, (const int32_t *)payload, n / 4, head[1]);
		free(payload);
	}
	return fflush(stdout) ? EXIT_ENVIRONMENT : EXIT_OK;
}

static int compile(char **argv)
{
	Arena arena = {0};
	Diags diags = {.arena = &arena};
	TokenizerImage image;
	Compile c = {.diags.arena = &c.arena};
	load_families(&c);
	Tok tok;
	char why[200];
	double start = seconds();
	bool ok = read_tokenizer(&arena, &diags, argv[1], arena_printf(&arena, "%s/config.json", argv[1]),
		&c.families, atoi(argv[2]), &image);
	double compiled = seconds();
	int code = print_diags(&diags);
	if (ok) {
		if (tok_open(&tok, image.bytes, image.n_bytes, why, sizeof why)) {
			fprintf(stderr, "%s\n", why);
			exit(EXIT_INTERNAL);
		}
		printf("%.4f %.4f\n", compiled - start, seconds() - compiled);
		FILE *f = fopen(argv[3], "wb");
		bool written = f && fwrite(image.bytes, 1, image.n_bytes, f) == image.n_bytes;
		code = f && !fclose(f) && written ? EXIT_OK : EXIT_ENVIRONMENT;
	}
	arena_release(&arena);
	return code;
}

static int open_and_serve(const char *path)
{
	Tok tok;
	char why[200];
	FILE *f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END))
		return EXIT_BAD_INPUT;
	size_t n = (size_t)ftell(f);
	void *bytes = malloc(n ? n : 1);
	rewind(f);
	if (!bytes || fread(bytes, 1, n, f) != n)
		return EXIT_BAD_INPUT;
	fclose(f);
	int code = EXIT_INTEGRITY;
	if (tok_open(&tok, bytes, n, why, sizeof why))
		fprintf(stderr, "%s\n", why);
	else
		code = serve(&tok);
	free(bytes);
	return code;
}

int main(int argc, char **argv)
{
	if (argc == 4)
		return compile(argv);
	return argc == 2 ? open_and_serve(argv[1]) : EXIT_USAGE;
}
