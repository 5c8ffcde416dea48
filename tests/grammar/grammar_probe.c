/* grammar_probe - answers requests about grammars, for tests in Python.
 *
 *   grammar_probe FILE N_IDS END   a compiled tokenizer (tokdump), columns of the scores, the token that ends a text
 *
 * A request is one byte kind, uint32 length, payload; integers little-endian.
 *   's' 'r' 'c' compile the payload, a JSON schema, an expression, or a JSON list of choices; 'o' any JSON object. The
 *       reply is uint32 n, n bytes: nothing, or POINTER, a newline and why it was refused. A text begins with it
 *   'n' another text begins
 *   't' int32 tokens: the reply is uint32, how many of them were taken
 *   'y' int32 tokens are tried, with a mask after each, and taken back: the reply is that of 't'
 *   'b' bytes: the reply is uint32, 1 where they were taken
 *   'm' the reply is uint64 nanoseconds, uint32 1 = the text may end | 2 = it must, the mask [words]; all ones in
 *       place of the flags and no mask where it failed
 */
#include "runtime/grammar/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t nanoseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *read_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END) != 0)
		exit(2);
	const long n = ftell(f);
	rewind(f);
	void *bytes = aligned_alloc(8, ((size_t)n + 15) / 8 * 8);
	if (!bytes || fread(bytes, 1, (size_t)n, f) != (size_t)n)
		exit(2);
	fclose(f);
	return bytes;
}

static void put(const void *p, size_t n)
{
	if (n && fwrite(p, 1, n, stdout) != n)
		exit(2);
}

static void put_int(uint32_t n) { put(&n, sizeof n); }

static Grammar *compile(const Tok *tok, char kind, const char *payload, size_t n, GrammarError *e)
{
	const GrammarKind kinds[] = {GRAMMAR_SCHEMA, GRAMMAR_REGEX, GRAMMAR_CHOICE, GRAMMAR_OBJECT};
	GrammarSource source = {.kind = kinds[strchr("srco", kind) - "srco"], .text = payload, .tok = tok};
	json_error_t at;
	source.json = kind == 's' || kind == 'c' ? json_loadb(payload, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &at) : NULL;
	if ((kind == 's' || kind == 'c') && !source.json) {
		snprintf(e->text, sizeof e->text, "no JSON: %s", at.text);
		return NULL;
	}
	Grammar *g = grammar_compile(&source, e);
	json_decref(source.json);
	return g;
}

static void answer_mask(GrammarText *t, uint32_t *words, int n_words)
{
	const uint64_t began = nanoseconds();
	const bool ok = grammar_text_mask(t, words);
	const uint64_t took = nanoseconds() - began;
	put(&took, sizeof took);
	put_int(ok ? (uint32_t)grammar_text_is_whole(t) | (uint32_t)grammar_text_is_over(t) << 1 : UINT32_MAX);
	if (ok)
		put(words, sizeof *words * (size_t)n_words);
}

int main(int argc, char **argv)
{
	Tok tok;
	char why[200];
	if (argc != 4)
		return 2;
	void *image = read_file(argv[1]);
	const int n_ids = atoi(argv[2]);
	const int32_t end = atoi(argv[3]);
	FILE *size = fopen(argv[1], "rb");
	fseek(size, 0, SEEK_END);
	if (tok_open(&tok, image, (size_t)ftell(size), why, sizeof why))
		return fprintf(stderr, "%s\n", why), 2;
	fclose(size);
	const uint64_t began = nanoseconds();
	GrammarVocab *v = grammar_vocab_open(&tok, n_ids);
	fprintf(stderr, "vocabulary %.1f ms\n", (double)(nanoseconds() - began) / 1e6);
	Grammar *g = NULL;
	GrammarText *t = NULL;
	uint32_t *words = malloc(sizeof *words * (size_t)grammar_mask_words(n_ids)), n;
	for (int kind; v && words && (kind = getchar()) != EOF;) {
		if (fread(&n, sizeof n, 1, stdin) != 1)
			return 2;
		char *payload = calloc((size_t)n + 1, 1);
		if (!payload || fread(payload, 1, n, stdin) != n)
			return 2;
		if (kind == 's' || kind == 'r' || kind == 'c' || kind == 'o') {
			GrammarError e = {{0}, {0}};
			char reply[600];
			grammar_text_close(t);
			grammar_free(g);
			g = compile(&tok, (char)kind, payload, n, &e);
			if (g)
				grammar_prepare(g, v);
			t = g ? grammar_text_open(g, v, &end, 1) : NULL;
			const int k = g ? 0 : snprintf(reply, sizeof reply, "%s\n%s", e.pointer, e.text);
			put_int((uint32_t)k);
			put(reply, (size_t)k);
		} else if (kind == 'n') {
			grammar_text_close(t);
			t = grammar_text_open(g, v, &end, 1);
		} else if (kind == 't' || kind == 'y') {
			uint32_t taken = 0;
			if (kind == 'y')
				grammar_text_try(t);
			for (int32_t id; taken < n / 4; taken++) {
				memcpy(&id, payload + taken * 4, sizeof id);
				if (!grammar_text_push(t, id) || (kind == 'y' && !grammar_text_mask(t, words)))
					break;
			}
			if (kind == 'y')
				grammar_text_back(t);
			put_int(taken);
		} else if (kind == 'b')
			put_int(grammar_text_push_bytes(t, payload, n));
		else
			answer_mask(t, words, grammar_mask_words(n_ids));
		free(payload);
		fflush(stdout);
	}
	grammar_text_close(t);
	grammar_free(g);
	grammar_vocab_close(v);
	free(words);
	free(image);
	return 0;
}
