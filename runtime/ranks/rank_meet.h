/* rank_meet.h - ranks that are started one by one, on one host, meet at a socket in the file system.
 *
 * Rank 0 makes the socket, for its user alone, and removes it when all are there. The others may come before it. Who
 * comes with another number of ranks, or with a rank that is there already, is refused, and all ranks with it, in the
 * same words. A file that an earlier run has left is refused, not removed.
 */
#ifndef ATLAS_RANK_MEET_H
#define ATLAS_RANK_MEET_H

#include "runtime/ranks/rank_group.h"

enum { MEET_MS = 60000 }; /* by then all must be there */

/* Returns when all n ranks are there: the group, which is to be joined as `rank`; NULL with an error. */
RankGroup *group_meet(const char *path, int n, int rank, int within_ms, AtlasError *error);

#endif
