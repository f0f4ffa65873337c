/* SPDX-License-Identifier: Apache-2.0 */
#include "entrypoint/region.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <string.h>

enum { CONFIG_MAX_BYTES = 1024 * 1024 };

static const char blanks[] = " \t\r";

/* Cut blanks at both ends of `text` in place. */
static char *trim(char *text)
{
    char *end;

    text += strspn(text, blanks);
    end = text + strlen(text);
    while (end > text && strchr(blanks, end[-1]) != NULL) {
        *--end = '\0';
    }
    return text;
}

/* True when the section head `line` ("[default]", "[profile name]") is that of `profile`. */
static bool is_section(char *line, const char *profile)
{
    char *name = line + 1;
    char *end = strchr(name, ']');

    if (end == NULL) {
        return false;
    }
    *end = '\0';
    name = trim(name);
    if (strncmp(name, "profile", 7) == 0 && strchr(blanks, name[7]) != NULL && name[7] != '\0') {
        name = trim(name + 7);
    }
    return strcmp(name, profile) == 0;
}

/* The value of `region` in the section of `profile`, a part of `data`, which is changed; NULL when there is none. */
static const char *find_region(char *data, const char *profile)
{
    bool inside = false;
    char *rest = NULL;

    for (char *line = strtok_r(data, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        char *equals;

        line = trim(line);
        if (*line == '[') {
            inside = is_section(line, profile);
            continue;
        }
        equals = strchr(line, '=');
        if (inside && equals != NULL) {
            *equals = '\0';
            if (strcmp(trim(line), "region") == 0) {
                return trim(equals + 1);
            }
        }
    }
    return NULL;
}

enum pl_status pl_region_default(const struct pl_environment *environment, char **ret_region, struct pl_error *reterr)
{
    const char *region = pl_environment_get_or(environment, "AWS_DEFAULT_REGION", NULL);
    const char *file = pl_environment_get_or(environment, "AWS_CONFIG_FILE", NULL);
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_FREE char *data = NULL;

    if (region == NULL) {
        if (file != NULL) {
            pl_text_append(&path, file);
        } else {
            pl_text_printf(&path, "%s/.aws/config", pl_environment_get_or(environment, "HOME", "/root"));
        }
        PL_TRY(pl_text_check(&path, reterr));
        if (pl_file_read(pl_text_string(&path), CONFIG_MAX_BYTES, &data, NULL, NULL) == PL_OK) {
            region = find_region(data, pl_environment_get_or(environment, "AWS_PROFILE", "default"));
        }
    }
    *ret_region = pl_memory_string(region != NULL ? region : "", reterr);
    return *ret_region != NULL ? PL_OK : PL_MEMORY;
}
