/* kernelgen.c - build-time program: kernel templates -> kernel_table.c.
 *
 *   kernelgen -o OUT.c [-I DIR] FILE.cu...        DIR: where templates' includes are, kernels/templates
 *
 * Reads each template, checks its contract, and writes the table only if all are right. Exit code of the first
 * diagnostic: 3 = a contract is refused, 4 = a file is not valid, 2 = usage. No output is left after a refusal,
 * not even that of an earlier run, which would be a table of other templates.
 */
#include "compiler/kernelgen/kernelgen.h"

#include <stdio.h>
#include <string.h>

static void print_diag(const Diag *d)
{
	if (d->at.file)
		fprintf(stderr, "%s:", d->at.file);
	if (d->at.line)
		fprintf(stderr, "%d:%d:", d->at.line, d->at.col);
	fprintf(stderr, "%serror[%s]: %s\n", d->at.file ? " " : "", code_name(d->code), d->text);
}

static int finish(Gen *g, const char *out)
{
	for (int i = 0; i < g->diags.n; i++)
		print_diag(&g->diags.list[i]);
	if (g->diags.n_errors > g->diags.n)
		fprintf(stderr, "%d more errors\n", g->diags.n_errors - g->diags.n);
	int code = g->diags.n ? code_exit(g->diags.list[0].code) : EXIT_OK;
	if (code != EXIT_OK)
		remove(out);
	arena_release(&g->arena);
	return code;
}

int main(int argc, char **argv)
{
	Gen g = {.include_dir = "kernels/templates"};
	g.diags.arena = &g.arena;
	const char *out = NULL;
	int first = 1;
	for (; first + 1 < argc && argv[first][0] == '-'; first += 2) {
		if (strcmp(argv[first], "-o") == 0)
			out = argv[first + 1];
		else if (strcmp(argv[first], "-I") == 0)
			g.include_dir = argv[first + 1];
		else
			break;
	}
	if (!out || (first < argc && argv[first][0] == '-')) {
		fprintf(stderr, "usage: kernelgen -o OUT.c [-I DIR] FILE.cu...\n");
		return EXIT_USAGE;
	}
	for (int i = first; i < argc; i++) {
		RawTemplate raw;
		const int before = g.diags.n;
		if (read_template(&g, argv[i], &raw)) {
			expand_formulas(&g, &raw);
			check_contract(&g, &raw);
		}
		name_template(&g, &raw, before);
	}
	if (g.diags.n_errors == 0)
		write_table(&g, out);
	return finish(&g, out);
}
