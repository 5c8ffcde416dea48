/*
 *
 * The keys of config.json as  of transformers 5.17 reads them.
 */
#include "compiler/config_keys.h"
#include "models/families.h"

const ConfigKey _keys[] = {
