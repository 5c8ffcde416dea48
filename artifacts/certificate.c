/* certificate.c - see certificate.h.
 *
 * One function walks over all fields, in order, and either prints or reads them: so there is one description of the
 * form. What was read is printed again and must give the same bytes.
 */
#include "artifacts/certificate.h"
#include "artifacts/hash.h"
#include "artifacts/op_table.h"
#include "artifacts/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Walking ------------------------------------------------------------ */

typedef struct Walk { /* out: prints; else reads from `at` */
	FILE *out;
	const char *at, *end;
	bool is_bad; /* the text does not go on as it must; nothing more is read */
} Walk;

static void literal(Walk *w, const char *text)
{
	size_t n = strlen(text);
	if (w->out)
		fwrite(text, 1, n, w->out);
	else if (w->is_bad || (size_t)(w->end - w->at) < n || memcmp(w->at, text, n) != 0)
		w->is_bad = true;
	else
		w->at += n;
}

/* Does the text go on so? What it goes on by is taken. Printing: the answer is `prints`. */
static bool goes_on(Walk *w, const char *text, bool prints)
{
	size_t n = strlen(text);
	if (w->out ? !prints : w->is_bad || (size_t)(w->end - w->at) < n || memcmp(w->at, text, n) != 0)
		return false;
	literal(w, text);
	return true;
}

static bool is_plain(char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; }

static void string(Walk *w, char *text, size_t room)
{
	size_t n = 0;
	literal(w, "\"");
	if (w->out) {
		for (const char *p = text; *p; p++)
			putc(is_plain(*p) ? *p : '?', w->out);
	} else {
		while (!w->is_bad && w->at < w->end && is_plain(*w->at) && n + 1 < room)
			text[n++] = *w->at++;
		text[n] = 0;
	}
	literal(w, "\"");
}

static void hex(Walk *w, uint8_t *bytes, size_t n)
{
	literal(w, "\"");
	if (w->out)
		hex_put(w->out, bytes, (int)n);
	for (size_t i = 0; i < n && !w->out && !w->is_bad; i++) {
		static const char digits[] = "0123456789abcdef";
		const char *high = w->end - w->at >= 2 ? memchr(digits, w->at[0], 16) : NULL;
		const char *low = high ? memchr(digits, w->at[1], 16) : NULL;
		w->is_bad = !low;
		if (low)
			bytes[i] = (uint8_t)((high - digits) << 4 | (low - digits)), w->at += 2;
	}
	literal(w, "\"");
}

static void number(Walk *w, double *x)
{
	if (w->out) {
		fprintf(w->out, "%.6g", isfinite(*x) ? *x : 1e30);
		return;
	}
	char text[32] = "", *end;
	size_t n = 0;
	while (w->at + n < w->end && n + 1 < sizeof text && memchr("+-.0123456789e", w->at[n], 14))
		n++;
	memcpy(text, w->at, n);
	*x = strtod(text, &end);
	w->is_bad |= n == 0 || *end || !isfinite(*x);
	w->at += w->is_bad ? 0 : n;
}

static void whole(Walk *w, int64_t *x, int64_t low, int64_t high)
{
	double value = (double)*x;
	if (w->out) {
		fprintf(w->out, "%lld", (long long)*x);
		return;
	}
	number(w, &value);
	w->is_bad |= !(value >= (double)low && value <= (double)high && value == floor(value));
	*x = w->is_bad ? low : (int64_t)value;
}

static void integer(Walk *w, int *x, int low, int high)
{
	int64_t value = *x;
	whole(w, &value, low, high);
	*x = (int)value;
}

static void name_of_dtype(Walk *w, Dtype *d)
{
	char text[CERT_TEXT];
	snprintf(text, sizeof text, "%s", w->out ? dtype_name(*d) : "");
	string(w, text, sizeof text);
	w->is_bad |= !w->out && !dtype_from_name(text, d);
}

static void name_of_op(Walk *w, OpKind *op)
{
	char text[CERT_TEXT];
	snprintf(text, sizeof text, "%s", w->out ? op_table[*op].name : "");
	string(w, text, sizeof text);
	w->is_bad |= !w->out && !op_from_name(text, op);
}

/* Room for element i of a list that is read. */
static void *element(Walk *w, void **list, int i, size_t bytes)
{
	if (w->out)
		return (char *)*list + (size_t)i * bytes;
	void *grown = realloc(*list, (size_t)(i + 1) * bytes);
	if (!grown) {
		w->is_bad = true;
		return NULL;
	}
	*list = grown;
	return memset((char *)grown + (size_t)i * bytes, 0, bytes);
}

/* Is there an element i? Separators are walked over. */
static bool next(Walk *w, int i, int n, const char *open, const char *between)
{
	if (w->out ? i >= n : w->is_bad)
		return false;
	literal(w, i ? between : open);
	return !w->is_bad;
}

static void walk_layers(Walk *w, Certificate *c)
{
	literal(w, ",\n\"layers\":[");
	for (int i = 0; next(w, i, c->n_layers, "\n", ",\n"); i++) {
		CertLayer *l = element(w, (void **)&c->layers, i, sizeof *l);
		if (!l)
			return;
		literal(w, "{\"dtype\":");
		name_of_dtype(w, &l->dtype);
		double *figures[] = {&l->cosine, &l->median, &l->rms, &l->max};
		static const char *const names[] = {",\"cosine\":", ",\"median\":", ",\"rms\":", ",\"max\":"};
		for (int k = 0; k < 4; k++)
			literal(w, names[k]), number(w, figures[k]);
		literal(w, "}");
		c->n_layers = w->out ? c->n_layers : i + 1;
		if (!w->out && w->at < w->end && *w->at == ']')
			break;
	}
	literal(w, "]");
}

static void walk_ops(Walk *w, Certificate *c)
{
	literal(w, ",\n\"ops\":[");
	for (int i = 0; next(w, i, c->n_ops, "\n", ",\n"); i++) {
		CertOp *o = element(w, (void **)&c->ops, i, sizeof *o);
		if (!o)
			return;
		literal(w, "{\"phase\":");
		string(w, o->phase, sizeof o->phase);
		literal(w, ",\"op\":");
		name_of_op(w, &o->op);
		literal(w, ",\"kernel\":");
		string(w, o->kernel, sizeof o->kernel);
		literal(w, ",\"result\":");
		string(w, o->result, sizeof o->result);
		literal(w, ",\"stored\":");
		name_of_dtype(w, &o->stored);
		literal(w, ",\"dtype\":");
		name_of_dtype(w, &o->dtype);
		literal(w, ",\"launches\":");
		integer(w, &o->launches, 1, 1 << 30);
		literal(w, ",\"values\":");
		whole(w, &o->values, 0, (int64_t)1 << 50);
		literal(w, ",\"layer\":");
		integer(w, &o->layer, -1, PLAN_MAX_LAYERS);
		double *figures[] = {&o->cosine, &o->rms, &o->max};
		static const char *const names[] = {",\"cosine\":", ",\"rms\":", ",\"max\":"};
		for (int k = 0; k < 3; k++)
			literal(w, names[k]), number(w, figures[k]);
		literal(w, "}");
		c->n_ops = w->out ? c->n_ops : i + 1;
		if (!w->out && w->at < w->end && *w->at == ']')
			break;
	}
	literal(w, "]");
}

/* All but key and signature. */
static void walk(Walk *w, Certificate *c, bool *holds)
{
	literal(w, "{\"atlas_certificate\":2,\n\"root\":");
	hex(w, c->root, sizeof c->root);
	literal(w, ",\n\"target\":");
	string(w, c->target, sizeof c->target);
	literal(w, ",\n\"capability\":[");
	integer(w, &c->cc_major, 0, 99);
	literal(w, ",");
	integer(w, &c->cc_minor, 0, 99);
	literal(w, "],\n\"device\":");
	string(w, c->device, sizeof c->device);
	literal(w, ",\n\"driver\":");
	integer(w, &c->driver, 0, 1 << 30);
	literal(w, ",\n\"atlas\":");
	string(w, c->atlas, sizeof c->atlas);
	literal(w, ",\n\"tokens\":[");
	for (int i = 0; (w->out ? i < c->n_tokens : !w->is_bad) && i < CERT_TOKENS; i++) {
		literal(w, i ? "," : "");
		integer(w, &c->tokens[i], 0, 1 << 30);
		c->n_tokens = w->out ? c->n_tokens : i + 1;
		if (!w->out && w->at < w->end && *w->at == ']')
			break;
	}
	literal(w, "],\n\"phases\":[");
	for (int i = 0; next(w, i, c->n_phases, "", ","); i++) {
		CertPhase *p = element(w, (void **)&c->phases, i, sizeof *p);
		if (!p)
			return;
		string(w, p->name, sizeof p->name);
		c->n_phases = w->out ? c->n_phases : i + 1;
		if (!w->out && w->at < w->end && *w->at == ']')
			break;
	}
	literal(w, "]");
	walk_layers(w, c);
	walk_ops(w, c);
	literal(w, ",\n\"certified\":");
	*holds = goes_on(w, "true", *holds);
	if (!*holds)
		literal(w, "false");
	literal(w, ",\n");
}

/* Judging ------------------------------------------------------------ */

double cert_layer_limit(const Certificate *c, int layer)
{
	double t = dtype_tolerance(c->layers[layer].dtype);
	return t * t / 2;
}

double cert_op_limit(const CertOp *op)
{
	bool is_code = op->stored == DT_e4m3 || op->stored == DT_e2m1;
	return (is_code ? 2 : 1) * dtype_tolerance(op->dtype);
}

/* The layer of a launch, or of an output, as people say it. */
static void name_layer(char *out, size_t n, int layer, int n_layers)
{
	if (layer < 0)
		snprintf(out, n, "start");
	else if (layer >= n_layers)
		snprintf(out, n, "end");
	else
		snprintf(out, n, "layer %d", layer);
}

bool certificate_holds(const Certificate *c, char *why, size_t why_bytes)
{
	const CertOp *first = NULL; /* of those out of tolerance the one in the first layer */
	char layer[32];
	if (c->n_layers < 2 || c->n_ops < 1 || c->n_phases < 1)
		return say_why(why, why_bytes, "it measures nothing");
	for (int i = 0; i < c->n_ops; i++) {
		const CertOp *o = &c->ops[i];
		bool good = o->max >= 0 && o->rms >= 0 && o->max <= cert_op_limit(o) &&
			o->rms <= dtype_tolerance(o->dtype) / 4;
		if (!good && (!first || o->layer < first->layer))
			first = o;
	}
	if (first) {
		name_layer(layer, sizeof layer, first->layer, c->n_layers - 1);
		return say_why(why, why_bytes, "%s: %s of %s by %s in %s is wrong by %.3g of its largest value and %.3g in "
			"the mean; %s allows %.3g and %.3g", layer, first->result, op_table[first->op].name, first->kernel,
			first->phase, first->max, first->rms, dtype_name(first->dtype), cert_op_limit(first),
			dtype_tolerance(first->dtype) / 4);
	}
	for (int l = 0; l < c->n_layers; l++) {
		if (c->layers[l].median <= 1 + 1e-6 && 1 - c->layers[l].median <= cert_layer_limit(c, l))
			continue;
		name_layer(layer, sizeof layer, l, c->n_layers - 1);
		return say_why(why, why_bytes, "%s: the cosine of the median row is %.6g; %s allows %.6g",
			l == c->n_layers - 1 ? "logits" : layer, c->layers[l].median, dtype_name(c->layers[l].dtype),
			1 - cert_layer_limit(c, l));
	}
	return true;
}

/* Texts ------------------------------------------------------------ */

static bool print_body(const Certificate *c, char **text, size_t *n)
{
	char why[512];
	bool holds = certificate_holds(c, why, sizeof why);
	*text = NULL;
	Walk w = {.out = open_memstream(text, n)};
	if (!w.out)
		return false;
	walk(&w, (Certificate *)(uintptr_t)c, &holds); /* which only reads when it prints */
	return fclose(w.out) == 0;
}

bool certificate_print(const Certificate *c, const PrivateKey *key, char **text, size_t *n)
{
	uint8_t public_key[PUBLIC_KEY_BYTES], signature[SIGNATURE_BYTES];
	char *body, *whole_text;
	size_t n_body;
	if (!print_body(c, &body, &n_body))
		return false;
	bool is_signed = key || c->is_signed, good = true;
	memcpy(public_key, key ? key->public_key : c->key, sizeof public_key);
	memcpy(signature, c->signature, sizeof signature);
	if (key)
		good = sign_bytes(key, CERT_DOMAIN, body, n_body, signature);
	FILE *out = good ? open_memstream(&whole_text, n) : NULL;
	if (out) {
		Walk w = {.out = out};
		fwrite(body, 1, n_body, out);
		literal(&w, "\"key\":");
		hex(&w, public_key, is_signed ? sizeof public_key : 0);
		literal(&w, ",\n\"signature\":");
		hex(&w, signature, is_signed ? sizeof signature : 0);
		literal(&w, "}\n");
		good = fclose(out) == 0;
		*text = whole_text;
	}
	free(body);
	return out && good;
}

bool certificate_read(const char *text, size_t n, Certificate *c, char *why, size_t why_bytes)
{
	Walk w = {.at = text, .end = text + n};
	char *again;
	size_t n_again;
	bool holds = true;
	*c = (Certificate){0};
	if (n > CERT_MAX_BYTES)
		return say_why(why, why_bytes, "it has %zu bytes: expected at most %d", n, CERT_MAX_BYTES);
	walk(&w, c, &holds);
	const size_t n_body = (size_t)(w.at - text);
	literal(&w, "\"key\":");
	c->is_signed = !goes_on(&w, "\"\"", false);
	if (c->is_signed)
		hex(&w, c->key, sizeof c->key);
	literal(&w, ",\n\"signature\":");
	if (c->is_signed)
		hex(&w, c->signature, sizeof c->signature);
	else
		literal(&w, "\"\"");
	literal(&w, "}\n");
	if (w.is_bad || w.at != w.end)
		return say_why(why, why_bytes, "byte %zu: not a certificate of this version", (size_t)(w.at - text));
	if (!certificate_print(c, NULL, &again, &n_again))
		return say_why(why, why_bytes, "no memory");
	bool same = n == n_again && memcmp(text, again, n) == 0;
	free(again);
	if (!same)
		return say_why(why, why_bytes, "not in the canonical form, or its verdict is not that of its figures");
	if (c->is_signed && !signature_holds(c->key, CERT_DOMAIN, text, n_body, c->signature))
		return say_why(why, why_bytes, "its signature is not valid");
	return true;
}

void certificate_free(Certificate *c)
{
	free(c->phases);
	free(c->layers);
	free(c->ops);
	*c = (Certificate){0};
}
