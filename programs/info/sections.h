/* SPDX-License-Identifier: Apache-2.0 */
/** The sections of `paceline info`: what is in this container and what it runs on. */
#ifndef PL_PROGRAMS_INFO_SECTIONS_H
#define PL_PROGRAMS_INFO_SECTIONS_H

#include "base/environment.h"
#include "programs/info/report.h"

/** What a section can ask. */
struct pl_info_place {
    const struct pl_environment *environment;
    const char *self_path;     /* this program, in the folder with the other ones */
    const char *front_version; /* what was built */
};

/** Each adds its section. What cannot be found out is a value of the section, in words. */
void pl_info_add_paceline(struct pl_info_report *report, const struct pl_info_place *place);
void pl_info_add_system(struct pl_info_report *report);
void pl_info_add_openmpi(struct pl_info_report *report, const struct pl_info_place *place);
void pl_info_add_python(struct pl_info_report *report, const struct pl_info_place *place);
void pl_info_add_ssh(struct pl_info_report *report, const struct pl_info_place *place);
void pl_info_add_devices(struct pl_info_report *report);
void pl_info_add_settings(struct pl_info_report *report, const struct pl_info_place *place);

#endif
