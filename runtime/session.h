/* session.h - inside of a session, for the files of runtime/ and for tests that bring their own device. */
#ifndef ATLAS_SESSION_H
#define ATLAS_SESSION_H

#include "runtime/device.h"
#include "runtime/plan_handle.h"

/* A session on a device that is already open, which the session owns from here on, on failure too. Steps have no
 * drafts, no limit of a gap and are not mixed until functions below ask for it. ATLAS_NO_MEMORY: *session is NULL. */
AtlasStatus session_open_on(const AtlasPlan *plan, Device *device, AtlasSession **session,
	AtlasError *error);

/* Of a plan of several ranks: the group that this process has joined. It outlives the session. */
typedef struct RankSeat {
	struct RankGroup *group;
	bool shares_card; /* several ranks may be on one GPU */
	const struct NcclRoad *nccl; /* how that library is opened (nccl.h) */
	const struct RankHooks *hooks; /* of a rank that follows; NULL = none (rank_device.h) */
} RankSeat;

/* atlas_session_open with a watch on the GPU, which lives as long as the session, and of several ranks; each NULL =
 * none. Rank 0 has the session; options are those of its GPU. */
AtlasStatus session_open_watched(const AtlasPlan *plan, const AtlasSessionOptions *options, const DeviceWatch *watch,
	const RankSeat *seat, AtlasSession **session, AtlasError *error);
/* What another rank does in the meantime, from its opening to the session's end. ATLAS_OK: rank 0 has closed. */
AtlasStatus session_follow(const AtlasPlan *plan, const AtlasSessionOptions *options, const DeviceWatch *watch,
	const RankSeat *seat, AtlasError *error);

/* Do steps draft and verify from here on, where the plan can? To be asked while the session holds no sequence. */
void session_speculate(AtlasSession *session, bool on);
/* For measurements. Which drafts count as accepted, of sequences that start from here on: shares [PLAN_MAX_VERIFY - 1],
 * 0 to 1, of the first, second, ... draft, whatever the model draws; 0 = as it draws. */
void session_prescribe(AtlasSession *session, const double *shares);
/* For measurements. Rows of each slot in the steps of a session that speculates, drafted or not, whatever the ladder
 * says: a number of rows that the plan has verify steps of, for as many slots as run. 0 = as the ladder says. */
void session_force_rows(AtlasSession *session, int each);

/* AtlasSessionOptions.max_gap and max_gap_each, 0 or more rows of a step, from here on. */
void session_max_gap(AtlasSession *session, int rows, int each);

/* AtlasSessionOptions.mixed (AtlasMixed) from here on, by the max_gap and drafts that are set. ATLAS_UNSUPPORTED: it
 * is ATLAS_MIXED_ON, and `error` says why it cannot be; nothing changes. */
AtlasStatus session_mix(AtlasSession *session, int mixed, AtlasError *error);

/* For tests: for how many positions beyond the next step sequences take pages as needed, 0 or more; else 256. */
void session_grow_by(AtlasSession *session, int positions);

/* atlas_trace and atlas_score of tokens [n] in one walk; `layer` or `score` may be NULL. hidden [rows, cols] f32 is of
 * the call: what `layer` leaves there the reference device goes on from. Statuses are those of the two. */
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
