/* audit_page.h - atlas audit --html: a plan as one page. */
#ifndef ATLAS_AUDIT_PAGE_H
#define ATLAS_AUDIT_PAGE_H

#include "artifacts/plan.h"

#include <stdio.h>

/* What the page says of the certificate next to the plan, which is not part of it. */
typedef enum CertificateState { CERTIFICATE_NONE, CERTIFICATE_HOLDS, CERTIFICATE_BROKEN } CertificateState;

/* Equal plans and certificates make equal bytes. why: of CERTIFICATE_BROKEN. False when there is no memory for it. */
bool audit_page(const Artifact *a, CertificateState certificate, const char *why, FILE *out);

#endif
