/* plan_options.h - options that `ferry plan` and the commands below it share. */
#ifndef CLI_PLAN_OPTIONS_H
#define CLI_PLAN_OPTIONS_H

#include "command.h"

#define PLAN_OPTION_RANK                                                                           \
    {                                                                                              \
        .name = "rank", .argument = "N", .text = "only the part of rank N",                        \
        .more = "What the rank sends, receives and keeps, made without the rest of the plan. "     \
                "Rounds are then those of this rank alone, and there is no lower bound."           \
    }

#define PLAN_OPTION_SLOT                                                                           \
    {                                                                                              \
        .name = "slot", .argument = "BYTES", .text = "largest batch of the schedule",              \
        .more = "Larger transfers are split, smaller ones of a pair of ranks are packed. K, M, G " \
                "and T are powers of 1024; KB, MB, GB and TB powers of 1000.",                     \
        .fallback = "256M"                                                                         \
    }

#define PLAN_OPTION_JSON                                                                           \
    {                                                                                              \
        .name = "json", .text = "print one JSON object",                                           \
        .more = "The fields are described in docs/formats/plan-json.md."                           \
    }

#define PLAN_OPTION_TRANSFERS                                                                      \
    {                                                                                              \
        .name = "transfers", .text = "list every transfer too",                                    \
        .more = "As readable text after the summary, or as the field transfer_list with --json."   \
    }

#endif
