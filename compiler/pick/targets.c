/* targets.c - what the compiler knows of each GPU it compiles for.
 *
 * Limits are those of the compute capability (CUDA C++ Programming Guide, "Compute Capabilities"): shared memory
 * of one block after opting in, 32-bit registers and threads of one SM. Speeds are those of a typical card of the
 * kind, from its data sheet, dense, without sparsity; they only rank candidates, so a few percent do not matter.
 * mma.sync reaches that rate up to sm_89 and on sm_12x; on sm_90a it measures 620 TFLOP/s, since only wgmma reads its
 * operands past the registers; on sm_100a it is taken as half. The cards:
 *
 *   sm_80 A100 SXM 80 GB   sm_89 L40S   sm_90a H100 SXM   sm_100a B200   sm_120a RTX PRO 6000   sm_121a GB10
 *
 * The last column is what hardware has said so far. Everything that lists targets prints it, and a plan records it.
 */
#include "compiler/pick/times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const Target target_table[] = {
	/* name      capability exact  SMs   smem    registers threads GB/s  TFLOP/s   mma launch us  card  ran on */
	{"sm_80",   8, 0, false,     108, 166912, 65536, 2048, 2039, 312, 312, 1.0, "a100", NULL},
	{"sm_89",   8, 9, false,     142, 101376, 65536, 1536, 864, 362, 362, 1.0, "l40s", NULL},
	{"sm_90a",  9, 0, true,      132, 232448, 65536, 2048, 3350, 989, 620, 0.8, "h100", "H100, H200"},
	{"sm_100a", 10, 0, true,     148, 232448, 65536, 2048, 8000, 2250, 1125, 0.8, "b200", NULL},
	{"sm_120a", 12, 0, true,     188, 101376, 65536, 1536, 1792, 504, 504, 0.8, "rtx-pro-6000", NULL},
	{"sm_121a", 12, 1, true,     48, 101376, 65536, 1536, 273, 125, 125, 1.0, "gb10", NULL},
};
const int n_target_table = sizeof target_table / sizeof target_table[0];

const Target *target_by_name(const char *name)
{
	for (int i = 0; i < n_target_table; i++)
		if (strcmp(target_table[i].name, name) == 0)
			return &target_table[i];
	return NULL;
}

const char *target_ran(const Target *t) { return t->ran_on ? t->ran_on : PLAN_NEVER_RAN; }

void print_targets(FILE *f)
{
	fprintf(f, "%-8s %-13s %-20s %s\n", "target", "typical card", "run on", "times of");
	for (int i = 0; i < n_target_table; i++) {
		const Target *t = &target_table[i];
		const size_t n = strlen(t->name);
		fprintf(f, "%-8s %-13s %-20s", t->name, t->card, target_ran(t));
		bool any = false;
		for (int k = 0; k < n_tuning_toml; k++)
			if (strncmp(tuning_toml[k].name, t->name, n) == 0 && tuning_toml[k].name[n] == '.') {
				fprintf(f, "%s %s", any ? "," : "", tuning_toml[k].name + n + 1);
				any = true;
			}
		fputs(any ? "\n" : " no card\n", f);
	}
}

/* Does a template of the target multiply rows of e2m1 by weights of e2m1? */
bool multiplies_fp4(const Target *t)
{
	for (int i = 0; i < n_kernel_table; i++)
		for (int k = 0; k < kernel_table[i].n_fields && template_serves(&kernel_table[i], t); k++)
			if (strcmp(kernel_table[i].fields[k].name, "x_block") == 0)
				return true;
	return false;
}

bool template_serves(const KernelTemplate *k, const Target *t)
{
	for (int i = 0; i < k->n_archs; i++) {
		char *suffix;
		long arch = strtol(k->archs[i], &suffix, 10);
		long ours = t->cc_major * 10 + t->cc_minor;
		if (*suffix == 'a' ? t->is_exact && ours == arch : ours >= arch)
			return true;
	}
	return false;
}
