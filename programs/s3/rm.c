/* SPDX-License-Identifier: Apache-2.0 */
/* `paceline s3 rm`: deletes objects. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "programs/s3/s3.h"

#include <string.h>

struct removal {
    struct pl_tool *tool;
    const char *bucket;
    const struct pl_s3_listing *listing;
};

static enum pl_status remove_entry(void *context, size_t index, struct pl_error *reterr)
{
    const struct removal *removal = context;

    return pl_s3_delete(removal->tool->client, removal->bucket, removal->listing->items[index].key,
                        pl_deadline_after_ns(removal->tool->timeout_ns), reterr);
}

static enum pl_status remove_tree(struct pl_tool *tool, const char *uri, const char *bucket, const char *prefix,
                                  struct pl_error *reterr)
{
    PL_AUTO_S3_LISTING struct pl_s3_listing listing = {.items = NULL};
    PL_AUTO_TEXT struct pl_text folder = PL_TEXT_NONE;
    struct removal removal = {.tool = tool, .bucket = bucket, .listing = &listing};

    /* "runs/1" must not match keys below "runs/10". */
    pl_text_printf(&folder, "%s%s", prefix, *prefix && prefix[strlen(prefix) - 1] != '/' ? "/" : "");
    PL_TRY(pl_text_check(&folder, reterr));
    PL_TRY(pl_tool_list(tool, bucket, pl_text_string(&folder), &listing, reterr));
    if (listing.count == 0) {
        return pl_error_set(reterr, PL_NOT_FOUND, "nothing below '%s'", uri);
    }
    return pl_tool_each(listing.count, remove_entry, &removal, reterr);
}

enum pl_status pl_tool_rm(struct pl_tool *tool, struct pl_error *reterr)
{
    PL_AUTO_FREE char *bucket = NULL;
    PL_AUTO_FREE char *key = NULL;

    if (tool->arg_count != 1) {
        return pl_error_set(reterr, PL_INVALID, "expected one s3://BUCKET/KEY");
    }
    PL_TRY(pl_s3_uri_parse(tool->args[0], &bucket, &key, reterr));
    if (!tool->recursive && (!*key || key[strlen(key) - 1] == '/')) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is not an object; use --recursive for the objects below it",
                            tool->args[0]);
    }
    PL_TRY(pl_tool_connect(tool, reterr));
    if (tool->recursive) {
        return remove_tree(tool, tool->args[0], bucket, key, reterr);
    }
    return pl_s3_delete(tool->client, bucket, key, pl_deadline_after_ns(tool->timeout_ns), reterr);
}
