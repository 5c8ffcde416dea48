/* rank_shared.h - the inside of a group: what its processes share, or, on several hosts, what each has of its own and
 * keeps like that of rank 0 by messages (GroupLinks). Of rank_group.c and runtime/meet. */
#ifndef ATLAS_RANK_SHARED_H
#define ATLAS_RANK_SHARED_H

#include "runtime/ranks/rank_group.h"

#include <pthread.h>
#include <stdatomic.h>

enum { GROUP_RECORDS = 32 }; /* that have room */

typedef struct Shared {
	_Atomic uint32_t lost;      /* 1 + the rank that failed first; 0 = none */
	_Atomic uint32_t has_text;   /* status and text are there */
	_Atomic int status;
	char text[400];
	_Atomic uint32_t is_open;
	_Atomic uint32_t arrived, generation; /* of the barrier */
	_Atomic uint32_t posted;    /* records; the futex on which ranks wait */
	_Atomic uint32_t done[PLAN_MAX_RANKS]; /* of them, by each rank */
	_Atomic int64_t beat[PLAN_MAX_RANKS]; /* ms; 0 = not yet */
	RankFacts facts[PLAN_MAX_RANKS];
	uint8_t said[128];          /* by rank 0 */
} Shared;

/* What a process sends to those on other hosts: rank 0 all, another one rank 0. Any thread may call. */
typedef struct GroupLinks GroupLinks;
struct GroupLinks {
	bool (*begin)(GroupLinks *l, RankGroup *g); /* the group's rank is known; false: no thread */
	void (*beat)(GroupLinks *l);                         /* each 100 ms */
	void (*arrive)(GroupLinks *l);                       /* not of rank 0: at the barrier, with this rank's facts */
	void (*pass)(GroupLinks *l);                         /* rank 0: all are there, with all facts and what is said */
	void (*open)(GroupLinks *l);
	void (*post)(GroupLinks *l, const RankRecord *record);
	void (*done)(GroupLinks *l);
	/* What rank 0 makes of it is the group's loss. */
	void (*lose)(GroupLinks *l, int rank, AtlasStatus status, const char *text);
	void (*close)(GroupLinks *l);                        /* when others have heard all; frees */
};

struct RankGroup {
	Shared *s;
	int n, rank;
	int shared, memory;         /* files: of s, of the records */
	uint8_t *records; int64_t record_bytes, mapped_bytes;
	int sockets[PLAN_MAX_RANKS][PLAN_MAX_RANKS]; /* [i][j]: the end of i for j */
	pid_t pids[PLAN_MAX_RANKS], parent; /* of rank 0: of the others; 0 = gone */
	int links[PLAN_MAX_RANKS];  /* closed at the other end when that rank's process ends; 0 = none */
	GroupLinks *hosts;          /* NULL = all are on this one */
	pthread_t thread;
	bool is_watching;
	atomic_bool stops, is_over; /* the thread; what rank 0 had to do */
	atomic_bool is_patient;     /* of rank 0 */
	_Atomic(volatile uint32_t *) abort;
	GroupLastFn *last; void *last_ctx;
};

/* A group whose other ranks are on other hosts: s is this process's own. Takes the links on success. */
RankGroup *group_of_hosts(int n, GroupLinks *hosts, AtlasError *error);
/* Here alone: the first loss counts. True: it is this one. */
bool group_lose_here(RankGroup *g, int rank, AtlasStatus status, const char *text);
/* A rank is at the barrier. */
void group_arrive(RankGroup *g);
RankRecord *group_record_at(const RankGroup *g, uint32_t i);
void group_wake(RankGroup *g); /* who waits for records */

#endif
