/* cli_ranks.c - one command, a process for each rank of its plan.
 *
 * The command is rank 0. It forks the others before it has a thread or a GPU; they open the plan themselves, follow it
 * and end with it. Of a failure all ranks know; rank 0 alone says it.
 */
#include "runtime/cli/cli.h"
#include "runtime/ranks/rank_group.h"
#include "runtime/session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* "0,1": GPUs by number, each once unless they may be shared. How many; 0 after having said what is wrong. */
static int parse_devices(const Args *args, int devices[PLAN_MAX_RANKS])
{
	int n = 0;
	for (const char *p = args->devices;; p++) {
		char *end;
		errno = 0;
		const long device = strtol(p, &end, 10);
		if (end == p || errno || device < 0 || device > 1 << 10 || (*end && *end != ',') || n == PLAN_MAX_RANKS) {
			cli_say(args, EXIT_USAGE, "--devices %s: expected the numbers of at most %d GPUs with commas between them",
				args->devices, PLAN_MAX_RANKS);
			return 0;
		}
		for (int i = 0; i < n && !args->share_gpu; i++)
			if (devices[i] == device) {
				cli_say(args, EXIT_USAGE, "--devices %s: GPU %ld is named twice; --share-gpu allows it", args->devices,
					device);
				return 0;
			}
		devices[n++] = (int)device;
		if (!*end)
			return n;
		p = end;
	}
}

/* Another rank, from its first moment to its end. Its failures reach rank 0 by the group. */
static int follow(const Args *args, RankGroup *group, int rank, int device, pid_t parent)
{
	AtlasError error = {0};
	AtlasPlan *plan = NULL;
	Args own = *args;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* the terminal's is for rank 0 */
	signal(SIGTERM, SIG_IGN);
	if (getppid() != parent || group_join(group, rank, NULL, &error) != ATLAS_OK)
		return EXIT_PEER_LOST;
	own.quiet = true;
	const int nowhere = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (nowhere >= 0)
		dup2(nowhere, STDERR_FILENO); /* rank 0 says what is wrong */
	int code = cli_open_plan(&own, args->plan, &plan);
	if (code) {
		error_set(&error, ATLAS_IO, "the plan cannot be opened");
		group_fail(group, &error);
		return code;
	}
	const AtlasSessionOptions options = {.struct_size = sizeof options, .device_index = device,
		.steps_ahead = args->steps_ahead > 0 ? args->steps_ahead : 0};
	const AtlasStatus s = session_follow(plan, &options, &(RankSeat){group, args->share_gpu}, &error);
	if (s != ATLAS_OK)
		group_fail(group, &error);
	atlas_plan_close(plan);
	group_leave(group);
	return atlas_status_exit_code(s);
}

static void say_last(void *args, const AtlasError *error) { cli_fail(args, error); }

bool cli_start_ranks(Args *args, int *code)
{
	int devices[PLAN_MAX_RANKS];
	pid_t pids[PLAN_MAX_RANKS] = {0};
	AtlasError error = {0};
	if (!args->devices)
		return true;
	const int n = parse_devices(args, devices);
	*code = EXIT_USAGE;
	if (n == 0)
		return false;
	if (args->device_index > 0 || (args->device && strcmp(args->device, "cpu") == 0)) {
		cli_say(args, EXIT_USAGE, "--devices %s and %s: which GPUs there are is said once", args->devices,
			args->device_index > 0 ? "--device-index" : "--device cpu");
		return false;
	}
	args->device_index = devices[0];
	if (n == 1)
		return true;
	RankGroup *group = group_begin(n, &error);
	RankSeat *seat = calloc(1, sizeof *seat);
	*code = EXIT_ENVIRONMENT;
	if (!group || !seat) {
		*code = cli_fail(args, &error);
		return false;
	}
	const pid_t parent = getpid();
	fflush(NULL);
	for (int r = 1; r < n; r++) {
		pids[r] = fork();
		if (pids[r] == 0) {
			*code = follow(args, group, r, devices[r], parent);
			return false;
		}
		if (pids[r] < 0) {
			for (int i = 1; i < r; i++)
				kill(pids[i], SIGKILL);
			cli_say(args, EXIT_ENVIRONMENT, "rank %d has no process: %s", r, strerror(errno));
			return false;
		}
	}
	group_at_end(group, say_last, args);
	*code = group_join(group, 0, pids, &error) == ATLAS_OK ? EXIT_OK : cli_fail(args, &error);
	*seat = (RankSeat){group, args->share_gpu};
	args->seat = seat;
	return *code == EXIT_OK;
}

void cli_end_ranks(const Args *args)
{
	if (!args->seat)
		return;
	group_leave(args->seat->group);
	free((void *)(uintptr_t)args->seat);
}
