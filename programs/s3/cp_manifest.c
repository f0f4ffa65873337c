/* SPDX-License-Identifier: Apache-2.0 */
/* `paceline s3 cp --manifest`: copies the objects that a ManifestFile names. */
#include "programs/s3/s3.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "s3io/s3/manifest.h"

#include <stdlib.h>

struct objects {
    struct pl_tool *tool;
    const struct pl_manifest *manifest;
    const char *target;
    struct pl_s3_fetch *fetches;
    struct pl_s3_info *infos;
    char **keys, **paths;
};

/* Finds one object's size and ETag. */
static enum pl_status look_up(void *context, size_t index, struct pl_error *reterr)
{
    struct objects *objects = context;
    const struct pl_manifest *manifest = objects->manifest;
    struct pl_s3_info *info = &objects->infos[index];
    PL_AUTO_TEXT struct pl_text key = PL_TEXT_NONE, path = PL_TEXT_NONE;
    enum pl_status status;

    pl_text_printf(&key, "%s%s", manifest->prefix, manifest->keys[index]);
    PL_TRY(pl_text_take(&key, &objects->keys[index], reterr));
    status = pl_s3_local_path(objects->target, manifest->keys[index], &path, reterr);
    if (status == PL_OK) {
        status = pl_text_take(&path, &objects->paths[index], reterr);
    }
    if (status == PL_OK) {
        status = pl_s3_head(objects->tool->client, manifest->bucket, objects->keys[index],
                            pl_deadline_after_ns(objects->tool->timeout_ns), info, reterr);
    }
    if (status != PL_OK) {
        pl_error_context(reterr, "s3://%s/%s, which the manifest names", manifest->bucket, objects->keys[index]);
        return status;
    }
    objects->fetches[index] = (struct pl_s3_fetch){.object = {.bucket = manifest->bucket,
                                                              .key = objects->keys[index],
                                                              .etag = info->etag,
                                                              .size_bytes = info->size_bytes,
                                                              .checksum = info->checksum},
                                                   .path = objects->paths[index],
                                                   .modified_s = info->modified_s};
    return PL_OK;
}

enum pl_status pl_tool_cp_manifest(struct pl_tool *tool, const char *uri, const char *target, struct pl_error *reterr)
{
    PL_AUTO_MANIFEST struct pl_manifest manifest = {.bucket = NULL};
    PL_AUTO_FREE struct pl_s3_fetch *fetches = NULL;
    PL_AUTO_FREE struct pl_s3_info *infos = NULL;
    PL_AUTO_FREE char **keys = NULL, **paths = NULL; /* the download reorders its list */
    struct objects objects = {.tool = tool, .manifest = &manifest, .target = target};
    enum pl_status status;

    PL_TRY(pl_tool_connect(tool, reterr));
    PL_TRY(pl_manifest_fetch(tool->client, uri, pl_deadline_after_ns(tool->timeout_ns), &manifest, reterr));
    pl_manifest_sort(&manifest); /* a key that it has twice is one file */
    objects.fetches = fetches = pl_memory_new(manifest.count + 1, sizeof(*fetches), reterr);
    objects.infos = infos = pl_memory_new(manifest.count + 1, sizeof(*infos), reterr);
    objects.keys = keys = pl_memory_new(manifest.count + 1, sizeof(*keys), reterr);
    objects.paths = paths = pl_memory_new(manifest.count + 1, sizeof(*paths), reterr);
    PL_TRY(fetches && infos && keys && paths ? PL_OK : PL_MEMORY);
    status = pl_tool_each(manifest.count, look_up, &objects, reterr);
    if (status == PL_OK) {
        status = pl_tool_download(tool, fetches, manifest.count, reterr);
    }
    for (size_t i = 0; i < manifest.count; i++) {
        pl_s3_info_done(&infos[i]);
        free(keys[i]);
        free(paths[i]);
    }
    return status;
}
