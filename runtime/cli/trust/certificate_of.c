/* certificate_of.c - the certificate next to a plan, for --require-certified and policies. */
#include "artifacts/why.h"
#include "runtime/cli/trust/certify.h"
#include "runtime/plan_handle.h"
#include "runtime/ranks/rank_device.h"
#include "runtime/session.h"

#include <stdlib.h>
#include <string.h>

char *certificate_path(const char *plan)
{
	char *path = malloc(strlen(plan) + 6);
	if (path)
		sprintf(path, "%s.cert", plan);
	return path;
}

#define refuse(...) (say_why(__VA_ARGS__) ? 0 : EXIT_INTEGRITY)

bool certificate_is_whole(const Certificate *c, const Artifact *a, char *why, size_t n)
{
	const TargetPlan *t = NULL;
	for (int i = 0; i < a->n_targets; i++)
		if (strcmp(a->targets[i].target, c->target) == 0)
			t = &a->targets[i];
	if (!t)
		return !refuse(why, n, "it is for target %s, which the plan does not have", c->target);
	for (int i = 0; i < t->n_phases; i++) {
		char name[32];
		bool found = t->phases[i].kind == PROBE || t->phases[i].n_launches == 0;
		snprintf(name, sizeof name, "%s", PHASE_LABEL(&t->phases[i]));
		for (int k = 0; k < c->n_phases && !found; k++)
			found = strcmp(c->phases[k].name, name) == 0;
		if (!found)
			return !refuse(why, n, "%s was not measured", name);
	}
	if (c->n_layers != a->graph.n_layers + 1)
		return !refuse(why, n, "it has %d layers and logits, the plan %d", c->n_layers - 1, a->graph.n_layers);
	return true;
}

static int check_trust(const Args *args, const Certificate *c, char *why, size_t n)
{
	if (args->n_trust && !c->is_signed)
		return refuse(why, n, "it is not signed");
	for (int i = 0; i < args->n_trust; i++) {
		uint8_t key[PUBLIC_KEY_BYTES];
		char text[256];
		if (!key_read_public(args->trust[i], key, text, sizeof text))
			return refuse(why, n, "%s: %s", args->trust[i], text);
		if (memcmp(key, c->key, sizeof key) == 0)
			return 0;
	}
	return args->n_trust ? refuse(why, n, "it is signed by another key than those of --trust") : 0;
}

static int check(const Args *args, const Artifact *a, int major, int minor, const Certificate *c, char *why, size_t n)
{
	if (memcmp(c->root, a->root, sizeof c->root) != 0)
		return refuse(why, n, "it belongs to another plan: the root hashes differ");
	int code = check_trust(args, c, why, n);
	if (!code && !certificate_holds(c, why, n))
		code = EXIT_INTEGRITY;
	if (!code && !certificate_is_whole(c, a, why, n))
		code = EXIT_INTEGRITY;
	if (!code && major && (major != c->cc_major || minor != c->cc_minor))
		code = refuse(why, n, "it was measured on compute capability %d.%d (%s), this GPU has %d.%d", c->cc_major,
			c->cc_minor, c->device, major, minor);
	return code;
}

int certificate_demand(const Args *args, const Artifact *a, int major, int minor, char *why, size_t why_bytes)
{
	char *path = certificate_path(args->plan), *text = NULL, reason[640] = "no memory";
	FILE *file = path ? fopen(path, "rb") : NULL;
	Certificate c = {0};
	int code = EXIT_INTEGRITY;
	if (!file) {
		code = refuse(why, why_bytes, "there is no %s: atlas verify --certify makes one", path ? path : "certificate");
		free(path);
		return code;
	}
	text = malloc(CERT_MAX_BYTES + 1);
	size_t n = text ? fread(text, 1, CERT_MAX_BYTES + 1, file) : 0;
	fclose(file);
	if (text && certificate_read(text, n, &c, reason, sizeof reason))
		code = check(args, a, major, minor, &c, reason, sizeof reason);
	if (code)
		refuse(why, why_bytes, "%s: %s", path, reason);
	certificate_free(&c);
	free(text);
	free(path);
	return code;
}

int certificate_required(const Args *args, const AtlasPlan *plan, AtlasSession *session)
{
	char why[768];
	CudaView view;
	int major = 0, minor = 0;
	if (session && !cuda_view(ranked_inner(session_device(session)), &view))
		return cli_say(args, EXIT_INTEGRITY, "--require-certified: certificates are for GPUs, and this is device %s",
			session_device(session)->ops->kind);
	if (session) {
		view.cu->DeviceGetAttribute(&major, CU_ATTR_CC_MAJOR, view.device);
		view.cu->DeviceGetAttribute(&minor, CU_ATTR_CC_MINOR, view.device);
	}
	int code = certificate_demand(args, &plan->artifact, major, minor, why, sizeof why);
	if (code)
		return cli_say(args, code, "--require-certified: %s", why);
	if (session && !args->n_trust && !args->quiet)
		cli_message(args, NULL, MESSAGE_NOTE, NULL,
			"the certificate is valid, but any key may have signed it: --trust names the keys that count");
	return 0;
}
