/* verify_rebuild.h - atlas verify --rebuild. */
#ifndef ATLAS_VERIFY_REBUILD_H
#define ATLAS_VERIFY_REBUILD_H

#include "runtime/cli/cli.h"

int verify_rebuild(const Args *args); /* the exit code */

#endif
