/* rank_group.h - what the processes of a plan's ranks share: who is there, who was lost, and the steps to make.
 *
 * One process begins a group and then forks the others, before any of them has touched a GPU; or they are started one
 * by one and meet (rank_meet.h), on one host or several. Each joins with its number and has a thread that beats, looks
 * at the others' beats and, when a rank is lost, makes the kernels of its own GPU give up waiting (peers.h). The first
 * loss or failure is the group's: its rank, status and text are what every rank reports. Rank 0 posts records; the
 * others take them in order.
 */
#ifndef ATLAS_RANK_GROUP_H
#define ATLAS_RANK_GROUP_H

#include "artifacts/plan.h"
#include "runtime/atlas.h"

#include <stdbool.h>
#include <sys/types.h>

typedef struct RankGroup RankGroup;

/* For n ranks, 2 to PLAN_MAX_RANKS, in the process that will be rank 0. NULL: no memory, or no sockets. */
RankGroup *group_begin(int n, AtlasError *error);
/* In each process, once, after all are forked; `pids` [n] in rank 0's, of the others, is copied. Starts the thread. */
AtlasStatus group_join(RankGroup *g, int rank, const pid_t *pids, AtlasError *error);
/* What makes another process rank `rank` of a group that this one has begun: how many descriptors, which stay the
 * group's until it is joined. group_from: there, with those; takes them on success. */
enum { GROUP_FDS = 2 + PLAN_MAX_RANKS };
int group_share(const RankGroup *g, int rank, int fds[GROUP_FDS]);
RankGroup *group_from(int n, int rank, const int *fds, AtlasError *error);
/* Before joining: a socket that ends when the process of that rank does. The group closes it. */
void group_link(RankGroup *g, int rank, int socket);
/* What the thread calls before it ends a process that has not left 1.5 s after a loss: nothing asked its session. */
typedef void GroupLastFn(void *ctx, const AtlasError *error);
void group_at_end(RankGroup *g, GroupLastFn *fn, void *ctx);
/* Stops the thread; rank 0 waits up to 1 s for the other processes, then kills them. Frees the group. */
void group_leave(RankGroup *g);

int group_ranks(const RankGroup *g);
int group_rank(const RankGroup *g);
bool group_spans_hosts(const RankGroup *g); /* then no rank has memory or descriptors of another */

/* The version and which build of it this is: "0.1.0 3f2a5b6187f2e9e0". */
void group_build(char text[32]);
/* What all ranks must have alike. A rank whose facts differ from those of rank 0 is refused on all, with a text that
 * names what. Comes with a barrier. */
typedef struct RankFacts {
	uint8_t plan[32], schedule[32]; /* root hash; digests of all phases' collectives together */
	char build[32], card[256];
	int driver, nccl;               /* versions; 0 = not opened */
	uint8_t gpu[16];                /* UUID */
} RankFacts;
/* shares_card: two ranks may have one GPU. */
AtlasStatus group_compare(RankGroup *g, const RankFacts *facts, bool shares_card, AtlasError *error);
/* Returns when all ranks are there, ATLAS_OK, or when one was lost: with its status and text. */
AtlasStatus group_barrier(RankGroup *g, AtlasError *error);
/* What rank 0 has at `bytes`, at most 128, all have there when it returns. */
AtlasStatus group_say(RankGroup *g, void *bytes, size_t n, AtlasError *error);
/* Gives `own` to all others and gets theirs into fds [n]; fds[rank] is own. All are the caller's to close. */
AtlasStatus group_swap_fds(RankGroup *g, int own, int *fds, AtlasError *error);

/* This rank fails with that error: the group's, if it is the first. */
void group_fail(RankGroup *g, const AtlasError *error);
/* ATLAS_OK, or the group's failure: of another rank ATLAS_RANK_LOST, or while it opened its own status. */
AtlasStatus group_check(const RankGroup *g, AtlasError *error);
/* All ranks are open: what fails from now on is a rank lost. */
void group_opened(RankGroup *g);
/* From now on a rank may take as long as it likes for a record; it is lost only when nothing is heard of it. */
void group_be_patient(RankGroup *g);
/* Rank 0 has closed its session: from now on its end is not a loss. */
void group_is_over(RankGroup *g);
bool group_was_lost(const RankGroup *g); /* a rank is missing, and not since all is over */
/* The word of pinned memory that is set when a rank is lost; NULL: none any more. */
void group_set_abort(RankGroup *g, volatile uint32_t *word);

/* Records ------------------------------------------------------------------------------------------------ */

typedef struct RankRecord {
	int kind;
	int args[12];
	uint64_t key;
	int64_t bytes;  /* of `data` in use */
	uint8_t data[];
} RankRecord;

/* Room for records with that much data; called by all ranks, before the first one, with the same number. */
AtlasStatus group_open_ring(RankGroup *g, int64_t bytes, AtlasError *error);
/* Rank 0: the record to be filled, when all ranks have taken the one that was there; NULL: a rank was lost. */
RankRecord *group_next(RankGroup *g);
void group_post(RankGroup *g);
/* Others: the next record; NULL when a rank was lost, or when there was none for a while. Then that it was done. */
const RankRecord *group_take(RankGroup *g);
void group_done(RankGroup *g);

#endif
