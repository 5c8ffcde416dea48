/* host_links.h - what ranks on several hosts send each other, over one connection from each to rank 0. */
#ifndef ATLAS_HOST_LINKS_H
#define ATLAS_HOST_LINKS_H

#include "runtime/ranks/rank_shared.h"

/* sockets [n]: connected; of rank 0 those of the others, of another one that to rank 0; the rest 0. Takes them.
 * NULL: no memory. */
GroupLinks *host_links(int n, const int *sockets);

#endif
