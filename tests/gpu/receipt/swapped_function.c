/* swapped_function.c - a driver that runs another function than it was asked for, to see that `atlas receipt` sees it.
 *
 * Loaded before the C library (LD_PRELOAD), it stands between the runtime and cuLibraryGetKernel: the SWAP-th kernel
 * that is looked up (a number from 0, given when this is compiled) is replaced by one that does nothing, is named
 * `another`, and takes as many bytes of arguments. All else is the driver's.
 *
 *   cc -shared -fPIC -DSWAP=3 -o swapped.so tests/gpu/receipt/swapped_function.c
 *   LD_PRELOAD=./swapped.so atlas receipt PLAN
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifndef SWAP
#define SWAP 0
#endif

typedef int GetProc(const char *symbol, void **fn, int version, uint64_t flags, int *status);
typedef int GetKernel(void **kernel, void *library, const char *name);
typedef int LoadData(void **library, const void *code, void *, void *, unsigned, void *, void *, unsigned);
typedef int ParamInfo(void *kernel, size_t index, size_t *offset, size_t *bytes);

static void *(*real_dlsym)(void *, const char *);
static GetProc *real_get;
static GetKernel *real_kernel;
static int n_looked_up;

static void *driver_fn(const char *name, int version)
{
	void *at = NULL;
	int status;
	return real_get(name, &at, version, 0, &status) == 0 ? at : NULL;
}

static int get_kernel(void **kernel, void *library, const char *name)
{
	int r = real_kernel(kernel, library, name);
	if (r != 0 || n_looked_up++ != SWAP)
		return r;
	static char code[512];
	size_t offset, bytes;
	void *another;
	((ParamInfo *)driver_fn("cuKernelGetParamInfo", 12040))(*kernel, 0, &offset, &bytes);
	snprintf(code, sizeof code, ".version 7.8\n.target sm_80\n.address_size 64\n"
		".visible .entry another(.param .align 64 .b8 a[%zu])\n{\n\tret;\n}\n", bytes);
	r = ((LoadData *)driver_fn("cuLibraryLoadData", 12000))(&another, code, NULL, NULL, 0, NULL, NULL, 0);
	fprintf(stderr, "swapped_function: %s is replaced\n", name);
	return r != 0 ? r : real_kernel(kernel, another, "another");
}

static int get_proc(const char *symbol, void **fn, int version, uint64_t flags, int *status)
{
	int r = real_get(symbol, fn, version, flags, status);
	if (r == 0 && strcmp(symbol, "cuLibraryGetKernel") == 0) {
		memcpy(&real_kernel, fn, sizeof real_kernel);
		GetKernel *ours = get_kernel;
		memcpy(fn, &ours, sizeof ours);
	}
	return r;
}

void *dlsym(void *library, const char *name)
{
	if (!real_dlsym) {
		void *at = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
		at = at ? at : dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
		memcpy(&real_dlsym, &at, sizeof at);
	}
	void *found = real_dlsym(library, name);
	if (!found || strcmp(name, "cuGetProcAddress_v2") != 0)
		return found;
	memcpy(&real_get, &found, sizeof found);
	GetProc *ours = get_proc;
	memcpy(&found, &ours, sizeof ours);
	return found;
}
