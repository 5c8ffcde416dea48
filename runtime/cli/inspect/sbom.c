/* sbom.c - atlas info --sbom: a plan's provenance as a CycloneDX 1.6 document.
 *
 * metadata says what was made (the model, with its options) and with what; components are the kernels, by their machine
 * code, the sources they come from, and the files that were read. The same plan gives the same bytes: the serial number
 * is made of the root hash, and there is no time stamp.
 */
#include "artifacts/hash.h"
#include "artifacts/json_put.h"
#include "artifacts/sign.h"
#include "runtime/cli/inspect/sbom.h"

#include <string.h>

/* "," but before the first. */
static void separate(bool *is_first, FILE *out)
{
	fputs(*is_first ? "\n" : ",\n", out);
	*is_first = false;
}

static void put_property(const char *name, const char *value, bool *is_first, FILE *out)
{
	fputs(*is_first ? "" : ", ", out);
	*is_first = false;
	fputs("{\"name\": ", out);
	json_quoted(out, name);
	fputs(", \"value\": ", out);
	json_quoted(out, value);
	fputc('}', out);
}

static void put_number(const char *name, int64_t value, bool *is_first, FILE *out)
{
	char text[24];
	snprintf(text, sizeof text, "%lld", (long long)value);
	put_property(name, text, is_first, out);
}

/* Origins ---------------------------------------------------------------------------------------------- */

/* How many weights of the plan are of that file. */
static int count_weights(const Graph *g, const char *file)
{
	int n = 0;
	for (int i = 0; i < g->n_weights; i++)
		n += g->weights[i].file && strcmp(g->weights[i].file, file) == 0;
	return n;
}

static void put_origin(const Artifact *a, const Origin *o, const char *type, FILE *out)
{
	bool is_first = true;
	fprintf(out, "{\"type\": \"%s\", \"bom-ref\": \"origin:%d\", \"name\": ", type, (int)(o - a->origins));
	json_quoted(out, o->name);
	if (*o->version) {
		fputs(", \"version\": ", out);
		json_quoted(out, o->version);
	}
	if (*o->licence) {
		fputs(", \"licenses\": [{\"expression\": ", out);
		json_quoted(out, o->licence);
		fputs("}]", out);
	}
	if (*o->sha256)
		fprintf(out, ", \"hashes\": [{\"alg\": \"SHA-256\", \"content\": \"%s\"}]", o->sha256);
	fputs(", \"properties\": [", out);
	put_property("atlas:kind", o->kind, &is_first, out);
	if (o->bytes)
		put_number("atlas:bytes", o->bytes, &is_first, out);
	if (*o->detail)
		put_property("atlas:options", o->detail, &is_first, out);
	if (strcmp(o->kind, "weights") == 0)
		put_number("atlas:weights", count_weights(&a->graph, o->name), &is_first, out);
	fputc(']', out);
}

static bool is_kind(const Origin *o, const char *kind) { return strcmp(o->kind, kind) == 0; }

static void put_tools(const Artifact *a, FILE *out)
{
	bool is_first = true;
	for (int i = 0; i < a->n_origins; i++) {
		const Origin *o = &a->origins[i];
		if (!is_kind(o, "compiler") && !is_kind(o, "tool"))
			continue;
		separate(&is_first, out);
		put_origin(a, o, "application", out);
		fputc('}', out);
	}
}

static void put_files(const Artifact *a, bool *is_first, FILE *out)
{
	for (int i = 0; i < a->n_origins; i++) {
		const Origin *o = &a->origins[i];
		if (is_kind(o, "compiler") || is_kind(o, "tool"))
			continue;
		separate(is_first, out);
		put_origin(a, o, "file", out);
		fputc('}', out);
	}
}

/* Kernels ------------------------------------------------------------------------------------------------ */

static void put_kernel(const Artifact *a, const TargetPlan *t, int k, FILE *out)
{
	const Kernel *x = &t->kernels[k];
	uint8_t hash[32];
	bool is_first = true;
	sha256_of(a->file + artifact_section(a, "cubins")->offset + x->cubin_offset, (size_t)x->cubin_bytes, hash);
	fprintf(out, "{\"type\": \"file\", \"bom-ref\": \"kernel:%s:%d\", \"name\": ", t->target, k);
	json_quoted(out, x->name);
	fputs(", \"hashes\": [{\"alg\": \"SHA-256\", \"content\": \"", out);
	hex_put(out, hash, 32);
	fputs("\"}], \"properties\": [", out);
	put_property("atlas:kind", "kernel", &is_first, out);
	put_property("atlas:target", t->target, &is_first, out);
	put_property("atlas:defines", x->defines, &is_first, out);
	put_number("atlas:bytes", x->cubin_bytes, &is_first, out);
	fputs("]}", out);
}

/* The origin that is its template's file; -1 = none. */
static int source_of(const Artifact *a, const char *kernel)
{
	size_t n = strlen(kernel);
	for (int i = 0; i < a->n_origins; i++) {
		const char *slash = strrchr(a->origins[i].name, '/'), *name = slash ? slash + 1 : a->origins[i].name;
		if (is_kind(&a->origins[i], "source") && strncmp(name, kernel, n) == 0 && strcmp(name + n, ".cu") == 0)
			return i;
	}
	return -1;
}

static void put_dependencies(const Artifact *a, FILE *out)
{
	bool is_first = true;
	fputs("\"dependencies\": [\n{\"ref\": \"plan\", \"dependsOn\": [", out);
	for (int t = 0; t < a->n_targets; t++)
		for (int k = 0; k < a->targets[t].n_kernels; k++, is_first = false)
			fprintf(out, "%s\"kernel:%s:%d\"", is_first ? "" : ", ", a->targets[t].target, k);
	fputs("]}", out);
	for (int t = 0; t < a->n_targets; t++)
		for (int k = 0; k < a->targets[t].n_kernels; k++) {
			int source = source_of(a, a->targets[t].kernels[k].name);
			if (source >= 0)
				fprintf(out, ",\n{\"ref\": \"kernel:%s:%d\", \"dependsOn\": [\"origin:%d\"]}", a->targets[t].target, k,
					source);
		}
	fputs("\n]", out);
}

/* The document -------------------------------------------------------------------------------------------- */

/* A UUID of version 8, whose bits mean what its maker says: the root hash. */
static void put_serial(const uint8_t root[32], FILE *out)
{
	uint8_t b[16];
	memcpy(b, root, sizeof b);
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x80);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	fputs("urn:uuid:", out);
	for (int i = 0; i < 16; i++)
		fprintf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
}

static void put_model(const Artifact *a, FILE *out)
{
	bool is_first = true;
	char text[2 * 32 + 1], name[160];
	fputs("\"component\": {\"type\": \"machine-learning-model\", \"bom-ref\": \"plan\", \"name\": ", out);
	json_quoted(out, a->graph.family);
	fputs(", \"properties\": [", out);
	put_property("atlas:root", hex_text(a->root, 32, text), &is_first, out);
	put_number("atlas:format", PLAN_VERSION, &is_first, out);
	for (int i = 0; i < a->n_signatures; i++) {
		uint8_t id[KEY_ID_BYTES];
		key_id(a->signatures[i].public_key, id);
		put_property("atlas:signed-by", hex_text(id, KEY_ID_BYTES, text), &is_first, out);
	}
	for (int i = 0; i < a->n_options; i++) {
		snprintf(name, sizeof name, "atlas:option:%.120s", a->options[i].name);
		put_property(name, a->options[i].value, &is_first, out);
	}
	fputs("]}", out);
}

void sbom_json(const Artifact *a, FILE *out)
{
	bool is_first = true;
	fputs("{\"$schema\": \"http://cyclonedx.org/schema/bom-1.6.schema.json\", \"bomFormat\": \"CycloneDX\", "
		"\"specVersion\": \"1.6\", \"serialNumber\": \"", out);
	put_serial(a->root, out);
	fputs("\", \"version\": 1,\n\"metadata\": {\"tools\": {\"components\": [", out);
	put_tools(a, out);
	fputs("\n]},\n", out);
	put_model(a, out);
	fputs("},\n\"components\": [", out);
	for (int t = 0; t < a->n_targets; t++)
		for (int k = 0; k < a->targets[t].n_kernels; k++) {
			separate(&is_first, out);
			put_kernel(a, &a->targets[t], k, out);
		}
	put_files(a, &is_first, out);
	fputs("\n],\n", out);
	put_dependencies(a, out);
	fputs("}\n", out);
}
