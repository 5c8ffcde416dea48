/* rank_meet.h - ranks that are started one by one meet: on one host at a socket in the file system, else by TCP.
 *
 * Rank 0 makes the socket, for its user alone, and removes it when all are there. The others may come before it. Who
 * comes with another number of ranks, with other options, or as a rank that is there already, is refused, and all ranks
 * with it, in the same words. A file that an earlier run has left is refused, not removed.
 *
 * By TCP rank 0 listens at the address that it is given, and all show each other that they have the same key, without
 * sending it. Who has not is a stranger: it is not answered, and the ranks meet all the same. What is said later is
 * neither secret nor signed: the network between the hosts is trusted, as NCCL trusts it.
 */
#ifndef ATLAS_RANK_MEET_H
#define ATLAS_RANK_MEET_H

#include "runtime/ranks/rank_group.h"

enum { MEET_MS = 60000 }; /* by then all must be there */

/* Which rank of how many, and the options that all must have alike, as they are written: "--steps-ahead 8", or of one
 * that is not given "no --verify". */
enum { MEET_OPTIONS = 4 };
typedef struct MeetSeat { int n, rank; char options[MEET_OPTIONS][48]; } MeetSeat;

/* Returns when all ranks are there: the group, which is to be joined as the seat's rank; NULL with an error. */
RankGroup *group_meet(const char *path, const MeetSeat *seat, int within_ms, AtlasError *error);

enum { MEET_KEY_LEAST = 16, MEET_KEY_MOST = 4096 };
typedef struct MeetKey { const uint8_t *bytes; size_t n; } MeetKey;
bool is_meet_address(const char *text); /* HOST:PORT or [ADDRESS]:PORT, not a file */
RankGroup *group_meet_hosts(const char *address, MeetKey key, const MeetSeat *seat, int within_ms, AtlasError *error);

#endif
