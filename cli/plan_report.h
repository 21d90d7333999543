/* plan_report.h - a plan's figures as a screen for people and as one JSON object for programs.
 *
 * docs/formats/plan-json.md lists the fields. */
#ifndef CLI_PLAN_REPORT_H
#define CLI_PLAN_REPORT_H

#include "output.h"
#include "plan_figures.h"

/* What was planned, in words. All texts are borrowed. */
typedef struct plan_subject {
    const char *file;  /* the plan was read from it, or NULL */
    const char *model; /* or NULL */
    const char *from;  /* layout or parallel spec; NULL: several layouts */
    const char *to;
} plan_subject_t;

/* Which parts of a report are asked for. */
typedef struct plan_report {
    bool json;
    bool transfers; /* list every one */
} plan_report_t;

ferry_status_t plan_report_print(const plan_report_t *report, const plan_subject_t *subject,
                                 const plan_figures_t *figures, cli_output_t *out,
                                 ferry_error_t *err);

/* The two forms. */
ferry_status_t plan_report_json(const plan_report_t *report, const plan_subject_t *subject,
                                const plan_figures_t *figures, cli_output_t *out,
                                ferry_error_t *err);
void plan_report_text(const plan_subject_t *subject, const plan_figures_t *figures,
                      cli_output_t *out);

#endif
