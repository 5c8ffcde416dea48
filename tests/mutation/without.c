/* without.c - atlasc as it would be without one kernel template.
 *
 *   without TEMPLATE ATLASC-ARGUMENTS...
 *
 * The object of the kernel table is linked with its symbols renamed (deletions.py); what the compiler sees instead is a
 * copy that lacks the row. `without - ...` deletes nothing.
 */
#include "compiler/ir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const KernelTemplate whole_kernel_table[];
extern const int whole_n_kernel_table;
int atlasc_main(int argc, char **argv);

KernelTemplate rows[256] __asm__("kernel_table");
int n_rows __asm__("n_kernel_table");

int main(int argc, char **argv)
{
	for (int i = 0; argc > 1 && i < whole_n_kernel_table; i++)
		if (strcmp(whole_kernel_table[i].name, argv[1]) != 0)
			rows[n_rows++] = whole_kernel_table[i];
	if (argc < 2 || n_rows != whole_n_kernel_table - (strcmp(argv[1], "-") != 0)) {
		fprintf(stderr, "without: no template of that name\n");
		return 2;
	}
	argv[1] = argv[0];
	return atlasc_main(argc - 1, argv + 1);
}
