/* fake_libcuda.c - the fake driver as a libcuda.so.1, so that whole commands run on a card that is not there.
 *
 * The test sets LD_LIBRARY_PATH to its folder and, of the card, FAKE_CUDA_CC ("8.0") and FAKE_CUDA_NAME, and how many
 * there are, FAKE_CUDA_DEVICES; what op FAKE_CUDA_BAD leaves in layer 0 is three times too large, "OP@N": on device N
 * alone; with FAKE_CUDA_LIES kernel nodes of the device of that number are said to be a block wider; with
 * FAKE_CUDA_IDLE kernels do nothing; each graph waits FAKE_CUDA_SLOW microseconds; once there is a file
 * FAKE_CUDA_FAULT, no graph can be launched (CUDA's 719, "launch failed"); FAKE_CUDA_FAIL "K@N": the K-th call fails
 * after the context of device N was taken. The plan that is executed is the first word
 * of the process's command line that ends in ".bin"; kernels of a process without one do nothing.
 * cuAtlasFakeDriver exists here alone: whoever reports results asks for it, since none is a GPU's.
 */
#include "artifacts/op_table.h"
#include "tests/unit/fake_gpu.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static FakeDriver fake;
static FakeGpu gpu;
static Driver table;
static Artifact artifact;

static size_t no_params(void *ctx, int kernel)
{
	(void)ctx, (void)kernel;
	return 0;
}

static CuResult (*launch_graph)(CuGraphExec exec, CuStream stream);

static CuResult launch_or_fail(CuGraphExec exec, CuStream stream)
{
	return access(getenv("FAKE_CUDA_FAULT"), F_OK) == 0 ? 719 : launch_graph(exec, stream);
}

/* With FAKE_CUDA_SLOW: so many microseconds before each graph. */
static CuResult launch_slowly(CuGraphExec exec, CuStream stream)
{
	usleep((useconds_t)atoi(getenv("FAKE_CUDA_SLOW")));
	return launch_graph(exec, stream);
}

static CuResult (*retain_context)(CuContext *context, CuDevice device);
static CuResult (*tell_node)(CuGraphNode node, CuKernelNode *params);
static int bad_device = -1, device_at_hand = -1;

/* Which device this process is of; faults of one device alone are of that. */
static CuResult retain_and_note(CuContext *context, CuDevice device)
{
	device_at_hand = device;
	int fails_at = 0, fails_on = -1;
	if (bad_device >= 0 && bad_device != device)
		gpu.bad_factor = 0;
	if (getenv("FAKE_CUDA_FAIL") && sscanf(getenv("FAKE_CUDA_FAIL"), "%d@%d", &fails_at, &fails_on) == 2 &&
		fails_on == device) {
		fake.fail_at = fake.calls + 1 + fails_at;
		fake.fail_with = 999;
	}
	return retain_context(context, device);
}

static CuResult lie_about_node(CuGraphNode node, CuKernelNode *params)
{
	const CuResult r = tell_node(node, params);
	params->grid[0] += device_at_hand == atoi(getenv("FAKE_CUDA_LIES"));
	return r;
}

static bool plan_of_command_line(char path[static 4096])
{
	static char words[1 << 16];
	FILE *f = fopen("/proc/self/cmdline", "rb");
	const size_t n = f ? fread(words, 1, sizeof words - 1, f) : 0;
	if (f)
		fclose(f);
	for (const char *s = words; s < words + n; s += strlen(s) + 1)
		if (strlen(s) > 4 && strlen(s) < 4096 && strcmp(s + strlen(s) - 4, ".bin") == 0) {
			strcpy(path, s);
			return true;
		}
	return false;
}

/* The plan stays mapped until the process ends. */
static bool read_plan(const char *path)
{
	char why[512];
	struct stat st;
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0)
		return false;
	const uint8_t *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	return file != MAP_FAILED && artifact_read(file, st.st_size, NULL, &artifact, why, sizeof why) == READ_OK;
}

static void start(void)
{
	static bool is_started;
	char path[4096];
	if (is_started)
		return;
	is_started = true;
	fake_driver_start(&fake, &table);
	const char *cc = getenv("FAKE_CUDA_CC"), *name = getenv("FAKE_CUDA_NAME");
	if (cc && sscanf(cc, "%d.%d", &fake.cc_major, &fake.cc_minor) != 2)
		abort();
	fake.name = name;
	fake.n_devices = getenv("FAKE_CUDA_DEVICES") ? atoi(getenv("FAKE_CUDA_DEVICES")) : 1;
	fake.is_eager = fake.n_devices > 1; /* a rank that waits for records does not wait for its stream */
	fake.param_bytes = no_params;
	if (getenv("FAKE_CUDA_FAULT")) {
		launch_graph = table.GraphLaunch;
		table.GraphLaunch = launch_or_fail;
	}
	if (getenv("FAKE_CUDA_SLOW")) {
		launch_graph = table.GraphLaunch;
		table.GraphLaunch = launch_slowly;
	}
	retain_context = table.DevicePrimaryCtxRetain;
	table.DevicePrimaryCtxRetain = retain_and_note;
	if (getenv("FAKE_CUDA_LIES")) {
		tell_node = table.GraphKernelNodeGetParams;
		table.GraphKernelNodeGetParams = lie_about_node;
	}
	if (!plan_of_command_line(path) || !read_plan(path))
		return;
	fake_gpu_start(&gpu, &fake, &artifact);
	if (getenv("FAKE_CUDA_IDLE"))
		fake.execute = NULL;
	const char *bad = getenv("FAKE_CUDA_BAD");
	const size_t named = bad ? strcspn(bad, "@") : 0;
	bad_device = bad && bad[named] ? atoi(bad + named + 1) : -1;
	for (int op = 0; bad && op < OP_COUNT; op++)
		if (strlen(op_table[op].name) == named && strncmp(op_table[op].name, bad, named) == 0) {
			gpu.bad_op = (OpKind)op;
			gpu.bad_factor = 3;
		}
}

#define EXPORT __attribute__((visibility("default")))

EXPORT CuResult cuGetProcAddress_v2(const char *symbol, void **fn, int version, uint64_t flags, int *status)
{
	(void)flags;
	start();
	*fn = NULL;
#define ROW(row_name, since, args) \
	if (strcmp(symbol, "cu" #row_name) == 0 && version >= since) \
		memcpy(fn, &table.row_name, sizeof *fn);
	DRIVER_TABLE(ROW)
#undef ROW
	if (status)
		*status = *fn ? 0 : 1;
	return *fn ? CU_SUCCESS : CU_NOT_FOUND;
}

EXPORT int cuAtlasFakeDriver(void) { return 1; }

/* For the fake NCCL, which has no other way to the driver's graphs. */
EXPORT bool cuAtlasFakeCall(void (*fn)(void *), const void *params, size_t n)
{
	return fake_call_on_stream(fn, params, n);
}
