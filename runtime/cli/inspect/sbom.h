/* sbom.h - a plan's bill of materials. */
#ifndef ATLAS_SBOM_H
#define ATLAS_SBOM_H

#include "artifacts/plan.h"

#include <stdio.h>

/* One JSON document, CycloneDX 1.6. The plan was opened, so that its signatures hold. */
void sbom_json(const Artifact *a, FILE *out);

#endif
