/* Checkpoints of a run. DIR/step-00000100/ holds weights and both moments of all elements behind
 * step 100. Every rank writes what it owns into a file of its own; manifest.json
 * (executor/manifest.h) lists the files with sizes and checksums. A folder of that name is complete
 * because of the order: write and flush all files in step-00000100.tmp, collect the success of all
 * ranks, write the manifest, flush the folder, rename it, flush DIR. Whatever stops a save leaves
 * the checkpoint before it as it was.
 *
 * Files are keyed by the elements of the whole model that they hold, never by rank or stage, so any
 * plan reads what any other wrote, bit for bit. All functions are collective; all ranks see DIR. */
#ifndef EXECUTOR_CHECKPOINT_H
#define EXECUTOR_CHECKPOINT_H

#include "executor/checkpoint_folder.h"
#include "executor/weights.h"

/* Behind the step that the run is at. keep_last: remove older ones but so many; 0: none. */
ZS_MUST_CHECK bool zx_checkpoint_save(zx_run *run, const zx_data *data, const char *dir,
                                      int64_t keep_last, zs_error *err);

/* Takes the run to where the newest complete checkpoint of DIR was saved, or to DIR itself when it
 * is one. A damaged one is named on the log and the one before it is taken. *folder: what was read,
 * in the run's arena. */
ZS_MUST_CHECK bool zx_checkpoint_resume(zx_run *run, const char **folder, const zx_data *data,
                                        const char *dir, zs_error *err);

/* Gives the run these weights in place of random ones; nothing else changes. */
ZS_MUST_CHECK bool zx_checkpoint_init(zx_run *run, const zx_weights *weights, zs_error *err);

#endif
