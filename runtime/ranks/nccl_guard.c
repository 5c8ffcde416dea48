/* nccl_guard.c - what NCCL reads besides its arguments.
 *
 * Variables NCCL_* come before a communicator's configuration, and files are read into the environment. Those that name
 * interfaces or print messages may stay; any other is refused by its name, since it may change the order of a sum, and
 * so a result. Algorithm, protocol and channels are set: a sum's order then follows from its length alone. Multicast is
 * off, whose sums differ from call to call. This file alone reads the environment, so that nothing else in it counts.
 */
#include "runtime/device.h"
#include "runtime/ranks/nccl.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const struct { const char *name, *value; } pins[] = {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple"},
	{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_COLLNET_ENABLE", "0"}, {"NCCL_TUNER_PLUGIN", "none"},
	{"NCCL_PROFILER_PLUGIN", "none"}, {"NCCL_CONF_FILE", "/dev/null"}};
static const char *const harmless[] = {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_SOCKET_FAMILY",
	"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_RAS_ENABLE", "NCCL_RAS_ADDR",
	"NCCL_VERSION" /* a label of containers, which NCCL does not read */};

static bool is_named(const char *entry, size_t n, const char *name)
{
	return strlen(name) == n && memcmp(entry, name, n) == 0;
}

/* Of "NAME=VALUE": may it stay? */
static bool is_harmless(const char *entry)
{
	const size_t n = strcspn(entry, "=");
	for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++)
		if (is_named(entry, n, harmless[i]))
			return true;
	for (size_t i = 0; i < sizeof pins / sizeof pins[0]; i++)
		if (is_named(entry, n, pins[i].name))
			return entry[n] && strcmp(entry + n + 1, pins[i].value) == 0;
	return false;
}

void nccl_conf_fault(const char *path, char name[64])
{
	char line[1024];
	FILE *f = fopen(path, "rb");
	*name = 0;
	while (f && !*name && fgets(line, sizeof line, f)) {
		const char *at = line + strspn(line, " \t");
		line[strcspn(line, "\r\n")] = 0;
		if (*at && *at != '#' && !is_harmless(at))
			snprintf(name, 64, "%.*s", (int)strcspn(at, "= \t"), at);
	}
	if (f)
		fclose(f);
}

static AtlasStatus refuse_file(const char *path, AtlasError *error)
{
	char name[64];
	nccl_conf_fault(path, name);
	return *name ? error_set(error, ATLAS_UNSUPPORTED, "%s sets %s for NCCL, which may change results: remove it", path,
		name) : ATLAS_OK;
}

AtlasStatus nccl_guard(AtlasError *error)
{
	char path[4096];
	const struct passwd *user = getpwuid(geteuid());
	for (char **e = environ; e && *e; e++)
		if (strncmp(*e, "NCCL_", 5) == 0 && !is_harmless(*e))
			return error_set(error, ATLAS_UNSUPPORTED, "the environment sets %.*s, which may change results: unset it",
				(int)strcspn(*e, "="), *e);
	snprintf(path, sizeof path, "%s/.nccl.conf", user ? user->pw_dir : "");
	AtlasStatus s = refuse_file(path, error);
	s = s == ATLAS_OK ? refuse_file("/etc/nccl.conf", error) : s;
	for (size_t i = 0; s == ATLAS_OK && i < sizeof pins / sizeof pins[0]; i++)
		if (setenv(pins[i].name, pins[i].value, 1) != 0)
			return error_set(error, ATLAS_NO_MEMORY, "no memory for the environment");
	return s;
}
