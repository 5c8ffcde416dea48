/* policy_check.c - a plan compared with a policy, and the findings as text, JSON and SARIF.
 *
 * The phase PROBE computes nothing of the model, so no rule is about it.
 */
#include "artifacts/formats.h"
#include "artifacts/hash.h"
#include "artifacts/json_put.h"
#include "artifacts/op_table.h"
#include "artifacts/sign.h"
#include "runtime/cli/trust/policy.h"

#include <stdlib.h>
#include <string.h>

/* NULL when there is no memory: the caller then has nothing to fill. */
static Violation *add(Violations *v, const char *rule, int line)
{
	static const Violation none = {0};
	if (v->n == v->cap) {
		int cap = v->cap ? 2 * v->cap : 16;
		Violation *larger = realloc(v->at, (size_t)cap * sizeof *larger);
		if (!larger) {
			v->is_short_of_memory = true;
			return NULL;
		}
		v->at = larger;
		v->cap = cap;
	}
	Violation *new = &v->at[v->n++];
	*new = none;
	new->rule = rule;
	new->line = line;
	return new;
}

/* The name fits the pattern, in which one * stands for any text. */
static bool fits(const char *pattern, const char *name)
{
	const char *star = strchr(pattern, '*');
	if (!star)
		return strcmp(pattern, name) == 0;
	size_t head = (size_t)(star - pattern), tail = strlen(star + 1), n = strlen(name);
	return n >= head + tail && strncmp(name, pattern, head) == 0 && strcmp(name + n - tail, star + 1) == 0;
}

static const char *list_text(const PolicyList *list, char text[128])
{
	text[0] = 0;
	for (int i = 0; i < list->n; i++)
		snprintf(text + strlen(text), 128 - strlen(text), "%s%s", i ? ", " : "", list->words[i]);
	return text;
}

static bool is_listed(const PolicyList *list, const char *word)
{
	for (int i = 0; i < list->n; i++)
		if (strcmp(list->words[i], word) == 0)
			return true;
	return false;
}

/* A word is a dtype, or a format of MODEL.toml. */
static bool allows(const PolicyList *list, Dtype dtype)
{
	Dtype d;
	for (int i = 0; i < list->n; i++)
		if ((dtype_from_name(list->words[i], &d) || cache_from_name(list->words[i], &d)) && d == dtype)
			return true;
	return false;
}

/* Templates -------------------------------------------------------------------------------------------- */

static const char *template_of(const TargetPlan *t, const Launch *l) { return t->kernels[l->kernel].name; }

static bool is_met(const TargetPlan *t, const char *pattern)
{
	for (int p = 0; p < t->n_phases; p++)
		for (int i = 0; t->phases[p].kind != PROBE && i < t->phases[p].n_launches; i++)
			if (fits(pattern, template_of(t, &t->phases[p].launches[i])))
				return true;
	return false;
}

/* In each target; a plan without any has no launch at all. */
static void check_required(const Policy *policy, const Artifact *a, Violations *v)
{
	for (int k = 0; k < policy->required.n; k++)
		for (int i = 0; i == 0 || i < a->n_targets; i++) {
			const TargetPlan *t = a->n_targets ? &a->targets[i] : NULL;
			if (t && is_met(t, policy->required.words[k]))
				continue;
			Violation *x = add(v, "templates.required", policy->required.line);
			if (!x)
				return;
			snprintf(x->where, sizeof x->where, "%s", t ? t->target : "");
			snprintf(x->text, sizeof x->text, "no launch has a template %s", policy->required.words[k]);
		}
}

/* An earlier launch of the phase has this op with this template. */
static bool is_told(const TargetPlan *t, const Phase *p, int at)
{
	for (int i = 0; i < at; i++)
		if (p->launches[i].op == p->launches[at].op &&
			strcmp(template_of(t, &p->launches[i]), template_of(t, &p->launches[at])) == 0)
			return true;
	return false;
}

static void forbid_in_phase(const Policy *policy, const TargetPlan *t, const Phase *p, Violations *v)
{
	for (int i = 0; i < p->n_launches; i++)
		for (int k = 0; k < policy->forbidden.n; k++) {
			const Launch *l = &p->launches[i];
			const char *name = template_of(t, l);
			if (!fits(policy->forbidden.words[k], name) || is_told(t, p, i))
				continue;
			int n = 0;
			for (int m = i; m < p->n_launches; m++)
				n += p->launches[m].op == l->op && strcmp(template_of(t, &p->launches[m]), name) == 0;
			Violation *x = add(v, "templates.forbidden", policy->forbidden.line);
			if (!x)
				return;
			snprintf(x->where, sizeof x->where, "%s/%s", t->target, PHASE_LABEL(p));
			snprintf(x->text, sizeof x->text, "%s runs %s, %d launch%s: %s is forbidden", op_table[l->op].name, name, n,
				n == 1 ? "" : "es", policy->forbidden.words[k]);
			break;
		}
}

static void check_forbidden(const Policy *policy, const Artifact *a, Violations *v)
{
	for (int i = 0; policy->forbidden.n && i < a->n_targets; i++)
		for (int p = 0; p < a->targets[i].n_phases; p++)
			if (a->targets[i].phases[p].kind != PROBE)
				forbid_in_phase(policy, &a->targets[i], &a->targets[i].phases[p], v);
}

/* Dtypes -------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);
	return n >= m && strcmp(text + n - m, end) == 0;
}

/* What the operand is for the op; POLICY_ROLES = none of the roles (positions, states, tables the compiler made). */
static PolicyRole role_of(const Graph *g, const GraphOp *op, int operand)
{
	const Tensor *t = &g->tensors[op->operands[operand]];
	const char *name = op_table[op->kind].operands[operand].name;
	if (ends_with(name, "_scale"))
		return R_SCALE;
	if (t->role == ROLE_ACTIVATION)
		return R_ACTIVATION;
	if (t->role != ROLE_WEIGHT || strcmp(name, "inv_freq") == 0 || strcmp(name, "stop_tokens") == 0 ||
		strcmp(name, "ids") == 0)
		return POLICY_ROLES;
	if (strcmp(name, "table") == 0)
		return R_EMBEDDING;
	if (ends_with(name, "bias"))
		return R_BIAS;
	return op->kind == OP_rmsnorm || op->kind == OP_head_norm ? R_NORM : R_WEIGHT;
}

static void check_dtypes(const Policy *policy, const Artifact *a, Violations *v)
{
	const Graph *g = &a->graph;
	unsigned char *stated = calloc((size_t)g->n_tensors + 1, 1); /* a bit for each role */
	v->is_short_of_memory |= !stated;
	for (int i = 0; stated && i < g->n_ops; i++)
		for (int k = 0; k < op_table[g->ops[i].kind].n_operands; k++) {
			int tensor = g->ops[i].operands[k];
			PolicyRole role = tensor < 0 ? POLICY_ROLES : role_of(g, &g->ops[i], k);
			if (role == POLICY_ROLES || !policy->dtypes[role].line || (stated[tensor] & 1u << role))
				continue;
			stated[tensor] |= (unsigned char)(1u << role);
			const Dtype dtype = g->tensors[tensor].dtype;
			static const char *const rules[POLICY_ROLES] = {"dtypes.weight", "dtypes.embedding", "dtypes.norm",
				"dtypes.bias", "dtypes.scale", "dtypes.activation"};
			Violation *x = allows(&policy->dtypes[role], dtype) ? NULL
				: add(v, rules[role], policy->dtypes[role].line);
			char list[128];
			if (x)
				snprintf(x->text, sizeof x->text, "%s %s is %s: allowed %s", policy_role_names[role],
					g->tensors[tensor].name, dtype_name(dtype), list_text(&policy->dtypes[role], list));
		}
	free(stated);
}

/* The rule for the cache of a layer: the last [[kv.layers]] that names it, else kv.dtype. */
static const PolicyList *kv_rule(const Policy *policy, int layer)
{
	for (int i = policy->n_kv_layers - 1; i >= 0; i--)
		if (layer >= policy->kv_layers[i].first && layer <= policy->kv_layers[i].last)
			return &policy->kv_layers[i].dtypes;
	return &policy->kv;
}

/* Does an op before op i write the same cache? A drafting head's is written in several phases. */
static bool is_written_before(const Graph *g, int i, int cache)
{
	for (int j = 0; j < i; j++)
		if (g->ops[j].kind == OP_kv_write && g->ops[j].operands[op_operand(OP_kv_write, "kv")] == cache)
			return true;
	return false;
}

static void check_kv(const Policy *policy, const Artifact *a, Violations *v)
{
	const Graph *g = &a->graph;
	for (int i = 0; i < g->n_ops; i++) {
		int k = g->ops[i].kind == OP_kv_write ? op_operand(OP_kv_write, "kv") : -1;
		const PolicyList *rule = kv_rule(policy, g->ops[i].layer);
		if (k < 0 || !rule->line || is_written_before(g, i, g->ops[i].operands[k]))
			continue;
		const Dtype dtype = g->tensors[g->ops[i].operands[k]].dtype;
		const char *name = rule == &policy->kv ? "kv.dtype" : "kv.layers";
		Violation *x = allows(rule, dtype) ? NULL : add(v, name, rule->line);
		char list[128];
		if (!x)
			continue;
		if (g->ops[i].layer < g->n_layers)
			snprintf(x->where, sizeof x->where, "layer %d", g->ops[i].layer);
		else
			snprintf(x->where, sizeof x->where, "drafting head");
		snprintf(x->text, sizeof x->text, "keys and values are %s: allowed %s",
			cache_name(dtype) ? cache_name(dtype) : dtype_name(dtype), list_text(rule, list));
	}
	for (int i = 0; i < policy->n_kv_layers; i++)
		if (policy->kv_layers[i].last >= g->n_layers) {
			Violation *x = add(v, "kv.layers", policy->kv_layers[i].line);
			if (x)
				snprintf(x->text, sizeof x->text, "layers %d-%d: the model has layers 0 to %d",
					policy->kv_layers[i].first, policy->kv_layers[i].last, g->n_layers - 1);
		}
}

/* Launches and the plan as a whole ---------------------------------------------------------------------------- */

static int launches_of(const Phase *p, int layer)
{
	int n = 0;
	for (int i = 0; i < p->n_launches; i++)
		n += p->launches[i].layer == layer;
	return n;
}

static void limit_phase(const TargetPlan *t, const Phase *p, const char *rule, const PolicyNumber *most, int n_layers,
	Violations *v)
{
	for (int layer = 0, last; most->line && layer < n_layers; layer = last + 1) {
		int n = launches_of(p, layer);
		for (last = layer; last + 1 < n_layers && launches_of(p, last + 1) == n;)
			last++;
		Violation *x = n <= most->value ? NULL : add(v, rule, most->line);
		if (!x)
			continue;
		snprintf(x->where, sizeof x->where, "%s/%s/layers %d-%d", t->target, PHASE_LABEL(p), layer,
			last);
		snprintf(x->text, sizeof x->text, "%d launches a layer: at most %d", n, most->value);
	}
}

static void check_launches(const Policy *policy, const Artifact *a, Violations *v)
{
	for (int i = 0; i < a->n_targets; i++)
		for (int k = 0; k < a->targets[i].n_phases; k++) {
			const TargetPlan *t = &a->targets[i];
			const Phase *p = &t->phases[k];
			if (p->kind != PREFILL && p->kind != DECODE)
				continue;
			limit_phase(t, p, "launches.per_layer", &policy->per_layer, a->graph.n_layers, v);
			limit_phase(t, p, p->kind == PREFILL ? "launches.prefill" : "launches.decode",
				p->kind == PREFILL ? &policy->prefill : &policy->decode, a->graph.n_layers, v);
		}
}

/* Signatures of a plan that was opened hold. */
static bool is_signed_by(const PolicyList *signers, const Artifact *a)
{
	for (int i = 0; i < a->n_signatures; i++) {
		uint8_t id[KEY_ID_BYTES];
		char text[2 * KEY_ID_BYTES + 1];
		key_id(a->signatures[i].public_key, id);
		if (is_listed(signers, hex_text(id, KEY_ID_BYTES, text)))
			return true;
	}
	return false;
}

/* No option whose name begins so. */
static void forbid_options(const char *rule, const PolicyNumber *may, const char *const *begins, int n,
	const Artifact *a, Violations *v)
{
	for (int i = 0; may->line && !may->value && i < a->n_options; i++)
		for (int k = 0; k < n; k++) {
			Violation *x = strncmp(a->options[i].name, begins[k], strlen(begins[k])) ? NULL : add(v, rule, may->line);
			if (x)
				snprintf(x->text, sizeof x->text, "%s: %s", a->options[i].name, a->options[i].value);
		}
}

static void check_whole(const Policy *policy, const Artifact *a, const char *uncertified, Violations *v)
{
	static const char *const waivers[] = {"kernels.pin.", "kernels.ban."}, *const unread[] = {"note."},
		*const overrides[] = {"config."};
	forbid_options("plan.waivers", &policy->waivers, waivers, 2, a, v);
	forbid_options("plan.unread", &policy->unread, unread, 1, a, v);
	forbid_options("plan.overrides", &policy->overrides, overrides, 1, a, v);
	Violation *x;
	for (int i = 0; policy->ran.value && i < a->n_targets; i++) {
		const char *ran = artifact_option_of(a, "target", a->targets[i].target, ".ran_on");
		if (ran && strcmp(ran, PLAN_NEVER_RAN) != 0)
			continue;
		if (!(x = add(v, "plan.ran", policy->ran.line)))
			continue;
		snprintf(x->where, sizeof x->where, "%s", a->targets[i].target);
		snprintf(x->text, sizeof x->text, PLAN_NEVER_RAN ": no plan for %s had run on hardware when this one was "
			"made", a->targets[i].target);
	}
	const char *seed = artifact_option(a, "weights.random_seed");
	x = policy->random_weights.line && !policy->random_weights.value && seed
		? add(v, "plan.random_weights", policy->random_weights.line) : NULL;
	if (x)
		snprintf(x->text, sizeof x->text, "the weights are random, made from seed %s", seed);
	bool is_wanted = policy->certificate.value && uncertified;
	x = is_wanted ? add(v, "plan.certificate", policy->certificate.line) : NULL;
	if (x)
		snprintf(x->text, sizeof x->text, "%s", uncertified);
	x = policy->signature.value && !a->n_signatures ? add(v, "plan.signature", policy->signature.line) : NULL;
	if (x)
		snprintf(x->text, sizeof x->text, "the plan has no signature");
	const PolicyList *signers = &policy->signers;
	x = signers->line && !is_signed_by(signers, a) ? add(v, "plan.signers", signers->line) : NULL;
	if (x)
		snprintf(x->text, sizeof x->text, "none of the plan's %d signatures is by a key of the list", a->n_signatures);
}

void policy_check(const Policy *policy, const Artifact *a, const char *uncertified, Violations *out)
{
	check_required(policy, a, out);
	check_forbidden(policy, a, out);
	check_dtypes(policy, a, out);
	check_kv(policy, a, out);
	check_launches(policy, a, out);
	check_whole(policy, a, uncertified, out);
}

/* Reports -------------------------------------------------------------------------------------------------- */

void policy_text(const Policy *policy, const Violations *v, FILE *out)
{
	for (int i = 0; i < v->n; i++)
		fprintf(out, "%s:%d: %s: %s%s%s\n", policy->path, v->at[i].line, v->at[i].rule, v->at[i].where,
			v->at[i].where[0] ? ": " : "", v->at[i].text);
	if (v->n)
		fprintf(out, "%d violation%s\n", v->n, v->n == 1 ? "" : "s");
	else
		fprintf(out, "the plan keeps to %s\n", policy->path);
}

void policy_json(const Policy *policy, const Violations *v, FILE *out)
{
	fputs("{\"schema_version\": 1, \"policy\": ", out);
	json_quoted(out, policy->path);
	fprintf(out, ", \"ok\": %s, \"violations\": [", v->n ? "false" : "true");
	for (int i = 0; i < v->n; i++) {
		fprintf(out, "%s{\"rule\": \"%s\", \"line\": %d, \"where\": ", i ? ", " : "", v->at[i].rule, v->at[i].line);
		json_quoted(out, v->at[i].where);
		fputs(", \"text\": ", out);
		json_quoted(out, v->at[i].text);
		fputc('}', out);
	}
	fputs("]}\n", out);
}

/* A path as a URI reference: what RFC 3986 does not allow is written as % and two digits. */
static void put_uri(const char *path, FILE *out)
{
	fputc('"', out);
	for (const unsigned char *p = (const unsigned char *)path; *p; p++)
		if (strchr("/-._~", *p) || (*p >= '0' && *p <= '9') || ((*p | 32) >= 'a' && (*p | 32) <= 'z'))
			fputc(*p, out);
		else
			fprintf(out, "%%%02X", *p);
	fputc('"', out);
}

static void put_rules(const Violations *v, FILE *out)
{
	int n = 0;
	for (int i = 0; i < v->n; i++) {
		bool is_new = true;
		for (int k = 0; k < i; k++)
			is_new &= strcmp(v->at[k].rule, v->at[i].rule) != 0;
		if (is_new)
			fprintf(out, "%s{\"id\": \"%s\", \"shortDescription\": {\"text\": \"the plan breaks the rule %s\"}}",
				n++ ? ", " : "", v->at[i].rule, v->at[i].rule);
	}
}

void policy_sarif(const Policy *policy, const Violations *v, FILE *out)
{
	fputs("{\"$schema\": \"https://json.schemastore.org/sarif-2.1.0.json\", \"version\": \"2.1.0\", \"runs\": [{"
		  "\"tool\": {\"driver\": {\"name\": \"atlas audit\", \"version\": ", out);
	json_quoted(out, atlas_version());
	fputs(", \"rules\": [", out);
	put_rules(v, out);
	fputs("]}}, \"results\": [", out);
	for (int i = 0; i < v->n; i++) {
		const Violation *x = &v->at[i];
		fprintf(out, "%s{\"ruleId\": \"%s\", \"level\": \"error\", \"message\": {\"text\": ", i ? ", " : "", x->rule);
		json_quoted(out, x->text);
		fputs("}, \"locations\": [{\"physicalLocation\": {\"artifactLocation\": {\"uri\": ", out);
		put_uri(policy->path, out);
		fprintf(out, "}, \"region\": {\"startLine\": %d}}", x->line);
		if (x->where[0]) {
			fputs(", \"logicalLocations\": [{\"fullyQualifiedName\": ", out);
			json_quoted(out, x->where);
			fputs("}]", out);
		}
		fputs("}]}", out);
	}
	fputs("]}]}\n", out);
}
