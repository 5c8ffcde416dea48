/* start_ranks.c - a process for each rank of a plan.
 *
 * One command is rank 0 and forks the others before it has a thread or a GPU; they open the plan themselves, follow it
 * and end with it. All ranks know of a failure; rank 0 alone prints it. Or each rank is a command of its own
 * (--rendezvous), and each prints what made it end.
 */
#include "runtime/cli/cli.h"
#include "runtime/ranks/nccl.h"
#include "runtime/cli/trust/receipt.h"
#include "runtime/meet/rank_meet.h"
#include "runtime/session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
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

/* Another rank, once it has joined. Failures reach rank 0 by the group. */
static int follow(const Args *args, RankGroup *group, int device, AtlasError *error)
{
	AtlasPlan *plan = NULL;
	Args own = *args;
	own.quiet = true;
	const int code = cli_open_plan(&own, args->plan, &plan);
	if (code) {
		error_set(error, ATLAS_IO, "the plan cannot be opened");
		group_fail(group, error);
		return code;
	}
	const AtlasSessionOptions options = {.struct_size = sizeof options, .device_index = device,
		.steps_ahead = args->certify ? 1 : args->steps_ahead > 0 ? args->steps_ahead : 0}; /* as rank 0 */
	const NcclRoad nccl = {nccl_load, args->nccl};
	const RankSeat seat = {group, args->share_gpu, &nccl, NULL};
	const AtlasStatus s = !args->seen ? session_follow(plan, &options, NULL, &seat, error)
		: args->certify ? certify_follow(&own, plan, &options, &seat, error)
		: receipt_follow(&own, plan, &options, &seat, error);
	if (s != ATLAS_OK)
		group_fail(group, error);
	atlas_plan_close(plan);
	group_leave(group);
	return atlas_status_exit_code(s);
}

/* A process that the command has started, from its first moment to its end. */
static int follow_parent(const Args *args, RankGroup *group, int rank, int device, pid_t parent)
{
	AtlasError error = {0};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* the terminal's is for rank 0 */
	signal(SIGTERM, SIG_IGN);
	if (getppid() != parent || group_join(group, rank, NULL, &error) != ATLAS_OK)
		return EXIT_PEER_LOST;
	const int nowhere = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (nowhere >= 0)
		dup2(nowhere, STDERR_FILENO); /* rank 0 says what is wrong */
	return follow(args, group, device, &error);
}

typedef struct OwnSeat { RankSeat seat; NcclRoad nccl; } OwnSeat; /* the first member is what args has */

static void take_seat(Args *args, OwnSeat *own, RankGroup *group)
{
	own->nccl = (NcclRoad){nccl_load, args->nccl};
	own->seat = (RankSeat){group, args->share_gpu, &own->nccl, NULL};
	args->seat = &own->seat;
}

/* The key that all ranks have, from a file that its user alone can read; what ends its last line does not count. */
static bool read_key(const Args *args, uint8_t key[MEET_KEY_MOST + 3], size_t *n)
{
	const char *path = args->rendezvous_key;
	struct stat found;
	if (!path) {
		cli_say(args, EXIT_USAGE, "--rendezvous %s: ranks that meet by TCP take --rendezvous-key FILE, the same bytes "
			"on all hosts", args->rendezvous);
		return false;
	}
	FILE *file = fopen(path, "rb");
	const bool is_there = file && fstat(fileno(file), &found) == 0;
	*n = is_there ? fread(key, 1, MEET_KEY_MOST + 3, file) : 0;
	const int why = !is_there || ferror(file) ? errno : 0;
	if (file)
		fclose(file);
	while (*n && (key[*n - 1] == '\n' || key[*n - 1] == '\r'))
		--*n;
	if (why)
		cli_say(args, EXIT_BAD_INPUT, "--rendezvous-key %s: %s", path, strerror(why));
	else if (found.st_mode & 077)
		cli_say(args, EXIT_BAD_INPUT, "--rendezvous-key %s: others can read the file: chmod 600 it", path);
	else if (*n < MEET_KEY_LEAST || *n > MEET_KEY_MOST)
		cli_say(args, EXIT_BAD_INPUT, "--rendezvous-key %s: a key has %d to %d bytes", path, MEET_KEY_LEAST,
			MEET_KEY_MOST);
	else
		return true;
	return false;
}

/* What else than its GPU a rank does differently with: the steps that it has graphs for, whether it takes a GPU that
 * another has, which weights it compares, when it refuses. All other options are of rank 0 alone, or of a host. */
static MeetSeat seat_of(const Args *args)
{
	MeetSeat s = {.n = args->ranks, .rank = args->rank};
	char *const to[] = {s.options[0], s.options[1], s.options[2], s.options[3]};
	const size_t room = sizeof s.options[0];
	snprintf(to[0], room, "--steps-ahead %d", args->steps_ahead > 0 ? args->steps_ahead : AHEAD_DEFAULT);
	snprintf(to[1], room, "%s--share-gpu", args->share_gpu ? "" : "no ");
	snprintf(to[2], room, "%s--verify%s%s", args->hashes ? "" : "no ", args->hashes ? " " : "",
		args->hashes ? args->hashes : "");
	if (args->memory_budget)
		snprintf(to[3], room, "--memory-budget %lld", (long long)args->memory_budget);
	else
		snprintf(to[3], room, "no --memory-budget");
	return s;
}

static void say_last(void *args, const AtlasError *error) { cli_fail(args, error); }

/* This process is one rank of several that are started one by one. */
static bool meet_ranks(Args *args, int *code)
{
	AtlasError error = {0};
	*code = EXIT_USAGE;
	if (strcmp(args->verb, "receipt") == 0 || strcmp(args->verb, "memory") == 0 || args->certify) {
		cli_say(args, EXIT_USAGE, "--rendezvous %s: atlas %s%s starts all ranks itself", args->rendezvous, args->verb,
			args->certify ? " --certify" : "");
		return false;
	}
	if (args->ranks < 2 || args->rank < 0 || args->rank >= args->ranks || args->devices) {
		cli_say(args, EXIT_USAGE, "--rendezvous %s: it takes --ranks N and --rank R, from 0 to N - 1, and not "
			"--devices", args->rendezvous);
		return false;
	}
	if (args->device && strcmp(args->device, "cpu") == 0) {
		cli_say(args, EXIT_USAGE, "--rendezvous %s: --device cpu runs all ranks itself", args->rendezvous);
		return false;
	}
	const int device = args->device_index > 0 ? args->device_index : 0;
	const bool is_remote = is_meet_address(args->rendezvous);
	uint8_t key[MEET_KEY_MOST + 3];
	size_t n_key = 0;
	if (!is_remote && args->rendezvous_key) {
		cli_say(args, EXIT_USAGE, "--rendezvous-key %s: it takes --rendezvous HOST:PORT", args->rendezvous_key);
		return false;
	}
	if (is_remote && !read_key(args, key, &n_key)) {
		*code = args->rendezvous_key ? EXIT_BAD_INPUT : EXIT_USAGE;
		return false;
	}
	const MeetSeat own = seat_of(args);
	RankGroup *group = is_remote ? group_meet_hosts(args->rendezvous, (MeetKey){key, n_key}, &own, MEET_MS, &error)
		: group_meet(args->rendezvous, &own, MEET_MS, &error);
	OwnSeat *seat = group ? calloc(1, sizeof *seat) : NULL;
	if (!seat || group_join(group, args->rank, NULL, &error) != ATLAS_OK) {
		*code = cli_fail(args, &error);
		return false;
	}
	group_at_end(group, say_last, args);
	if (args->rank == 0) {
		take_seat(args, seat, group);
		return true;
	}
	free(seat);
	*code = follow(args, group, device, &error);
	if (*code && error.status != ATLAS_OK)
		cli_fail(args, &error);
	return false;
}

/* GPUs by rank; how many, 0 after what is wrong was printed. */
static int choose_devices(const Args *args, int devices[PLAN_MAX_RANKS])
{
	int n = args->devices ? parse_devices(args, devices) : args->ranks;
	for (int i = 0; i < n && !args->devices; i++)
		devices[i] = i;
	if (n && args->ranks && args->ranks != n) {
		cli_say(args, EXIT_USAGE, "--ranks %d: --devices %s names %d", args->ranks, args->devices, n);
		n = 0;
	}
	if (n && (args->device_index > 0 || (args->device && strcmp(args->device, "cpu") == 0))) {
		cli_say(args, EXIT_USAGE, "%s%s and %s: which GPUs there are is said once", args->devices ? "--devices "
			: "--ranks", args->devices ? args->devices : "", args->device_index > 0 ? "--device-index"
			: "--device cpu");
		n = 0;
	}
	return n;
}

bool cli_start_ranks(Args *args, int *code)
{
	int devices[PLAN_MAX_RANKS];
	pid_t pids[PLAN_MAX_RANKS] = {0};
	AtlasError error = {0};
	if (args->rendezvous)
		return meet_ranks(args, code);
	*code = EXIT_USAGE;
	if (args->rank >= 0) {
		cli_say(args, EXIT_USAGE, "--rank %d: it takes --rendezvous FILE or HOST:PORT, where the ranks meet",
			args->rank);
		return false;
	}
	if (!args->devices && !args->ranks)
		return true;
	const int n = choose_devices(args, devices);
	if (n == 0)
		return false;
	if (n > 1 && !receipt_share(args, n)) {
		*code = cli_say(args, EXIT_ENVIRONMENT, "no memory for what %d ranks see", n);
		return false;
	}
	args->device_index = devices[0];
	if (n == 1)
		return true;
	RankGroup *group = group_begin(n, &error);
	OwnSeat *seat = calloc(1, sizeof *seat);
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
			*code = follow_parent(args, group, r, devices[r], parent);
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
	take_seat(args, seat, group);
	return *code == EXIT_OK;
}

int cli_look_at_ranks(const Args *args, char *why, size_t n)
{
	AtlasError error;
	const AtlasStatus s = args->seat ? group_check(args->seat->group, &error) : ATLAS_OK;
	if (s != ATLAS_OK)
		snprintf(why, n, "%s: %s", atlas_status_name(s), error.text);
	return s == ATLAS_OK ? 0 : atlas_status_exit_code(s);
}

void cli_end_ranks(const Args *args)
{
	if (!args->seat)
		return;
	group_leave(args->seat->group);
	free((void *)(uintptr_t)args->seat);
}
