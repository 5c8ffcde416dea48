/* verb_sign.c - atlas sign: put a signature into a plan that exists.
 *
 * All of the plan is checked first, weights too: who signs says that it is whole. What was signed stays as it is, since
 * signatures come after it and are outside the root hash.
 */
#include "artifacts/sign.h"
#include "runtime/cli/cli.h"
#include "runtime/plan_handle.h"

#include <stdlib.h>
#include <string.h>

enum { END_BYTES = 16 };

typedef struct Signed {
	const Artifact *a;
	PlanSignature signatures[PLAN_MAX_SIGNATURES];
	int n;
} Signed;

/* The file as it is, but for its end. */
static void write_signed(const void *what, FILE *out)
{
	const Signed *s = what;
	uint8_t end[END_BYTES] = {(uint8_t)s->n};
	memcpy(end + 8, PLAN_END, 8);
	fwrite(s->a->file, 1, (size_t)((const uint8_t *)s->a->signatures - s->a->file), out);
	fwrite(s->signatures, sizeof s->signatures[0], (size_t)s->n, out);
	fwrite(end, 1, sizeof end, out);
}

/* Into its place by key; a signature by the same key is the same one. */
static int insert(const Args *args, Signed *s, const PlanSignature *new)
{
	int at = 0;
	while (at < s->n && memcmp(s->signatures[at].public_key, new->public_key, sizeof new->public_key) < 0)
		at++;
	if (at < s->n && memcmp(s->signatures[at].public_key, new->public_key, sizeof new->public_key) == 0)
		return 0;
	if (s->n == PLAN_MAX_SIGNATURES)
		return cli_say(args, EXIT_BAD_INPUT, "%s: has %d signatures, the maximum", args->plan, s->n);
	memmove(&s->signatures[at + 1], &s->signatures[at], sizeof *new * (size_t)(s->n - at));
	s->signatures[at] = *new;
	s->n++;
	return 0;
}

static int sign(const Args *args, const Artifact *a, const PrivateKey *key)
{
	Signed s = {.a = a, .n = a->n_signatures};
	PlanSignature new;
	memcpy(s.signatures, a->signatures, sizeof new * (size_t)s.n);
	memcpy(new.public_key, key->public_key, sizeof new.public_key);
	if (!sign_bytes(key, PLAN_DOMAIN, a->root, sizeof a->root, new.signature))
		return cli_say(args, EXIT_ENVIRONMENT, "no memory for a signature");
	int code = insert(args, &s, &new);
	return code ? code : cli_write_file(args, args->output ? args->output : args->plan, write_signed, &s);
}

int verb_sign(const Args *args)
{
	AtlasPlan *plan = NULL;
	PrivateKey key;
	char why[256] = "";
	if (!args->key)
		return cli_say(args, EXIT_USAGE, "name a private key: atlas sign PLAN --key PEM");
	if (!key_read_private(args->key, &key, why, sizeof why))
		return cli_say(args, EXIT_BAD_INPUT, "%s: %s", args->key, why);
	int code = cli_check_output(args, args->output ? args->output : args->plan);
	code = code ? code : cli_open_plan(args, args->plan, &plan);
	if (!code && plan->makes_weights)
		code = cli_say(args, EXIT_BAD_INPUT, "%s: its weights are random and made when it is opened: a signature "
			"cannot cover them", args->plan);
	code = code ? code : sign(args, &plan->artifact, &key);
	key_forget(&key);
	atlas_plan_close(plan);
	return code;
}
