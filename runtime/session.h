/* session.h - inside of a session, for the files of runtime/ and for tests that bring their own device. */
#ifndef ATLAS_SESSION_H
#define ATLAS_SESSION_H

#include "runtime/device.h"
#include "runtime/plan_handle.h"

/* A session on a device that is already open. The session owns it from here on, on failure too. */
AtlasStatus session_open_on(const AtlasPlan *plan, Device *device, AtlasSession **session,
	AtlasError *error);

/* atlas_session_open with a watch on the GPU; NULL = none. */
AtlasStatus session_open_watched(const AtlasPlan *plan, const AtlasSessionOptions *options, const DeviceWatch *watch,
	AtlasSession **session, AtlasError *error);

/* For measurements. Whether flights draft and verify from here on, where the plan has a head: of a session that was
 * opened with speculation, while it holds no sequence. Which drafts count as accepted, of sequences that start from
 * here on: shares [PLAN_MAX_VERIFY - 1] of the first, second, ... draft, whatever the model draws; 0 = as it draws. */
void session_speculate(AtlasSession *session, bool on);
void session_prescribe(AtlasSession *session, const double *shares);
/* Rows of each slot that steps read which speculate, drafted or not, whatever the ladder says: a number that the plan
 * has for these slots. 0 = as the ladder says. */
void session_force_rows(AtlasSession *session, int each);

/* AtlasSessionOptions.max_gap and max_gap_each, for sessions on a device of a test's own. */
void session_max_gap(AtlasSession *session, int rows, int each);

/* Are steps mixed from here on? For sessions on a device of a test's own. */
void session_mix(AtlasSession *session, bool on);

/* For tests: how many positions beyond the next step sequences take pages as needed for; else 256. */
void session_grow_by(AtlasSession *session, int positions);

/* atlas_trace and atlas_score in one walk. What `layer` leaves in hidden the reference device goes on from. */
typedef int SessionLayerFn(void *ctx, int layer, int pos, int rows, int cols, float *hidden);
AtlasStatus session_walk(AtlasSession *session, const int32_t *tokens, int n, SessionLayerFn *layer,
	AtlasLogitsFn *score, void *ctx);

/* A prefix cache, also for sessions on a device of a test's own. */
AtlasStatus session_keep_prefixes(AtlasSession *session, AtlasError *error);
/* Why no session of the plan may have one; NULL = it may. */
const char *session_against_prefixes(const AtlasPlan *plan);

/* The device of a session, for measurements between its steps. Owned by the session. */
Device *session_device(AtlasSession *session);

#endif
