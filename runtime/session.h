/* session.h - inside of a session, for the files of runtime/ and for tests that bring their own device. */
#ifndef ATLAS_SESSION_H
#define ATLAS_SESSION_H

#include "runtime/device.h"
#include "runtime/plan_handle.h"

/* A session on a device that is already open. The session owns it from here on, on failure too. */
AtlasStatus session_open_on(const AtlasPlan *plan, Device *device, AtlasSession **session,
	AtlasError *error);

/* atlas_session_open with somebody who watches the GPU; NULL = nobody. */
AtlasStatus session_open_watched(const AtlasPlan *plan, const AtlasSessionOptions *options, const DeviceWatch *watch,
	AtlasSession **session, AtlasError *error);

/* The device of a session, for who measures between its steps. Owned by the session. */
Device *session_device(AtlasSession *session);

#endif
