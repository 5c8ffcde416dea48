/* model_folder.h - the folder that MODEL_DIR means. */
#ifndef ATLASC_MODEL_FOLDER_H
#define ATLASC_MODEL_FOLDER_H

#include "compiler/ir.h"

/* Makes cmd.model_dir the checkpoint's folder: of a hub's cache folder (models--ORG--NAME) or of its parent the
 * snapshot that refs/main names, with a note. False after having recorded A0104, A0409 or A0412: there is no folder
 * to read. */
bool find_model_folder(Compile *c);

#endif
