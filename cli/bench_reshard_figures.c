/* bench_reshard_figures.c - what a case of `ferry bench reshard` came to.
 *
 * Invariant: the limit's times are those that it would take for as many bytes, read plus written, as the
 * reshard has; so everything that compares times compares rates. */
#include <inttypes.h>
#include <stdio.h>

#include "bench_reshard.h"
#include "units.h"

/* ---- times ------------------------------------------------------------------------------------- */

static double step_s(const reshard_job_t *job, reshard_step_t step) {
    bench_stamp_t all = BENCH_STAMP_NONE;
    for (uint32_t rank = 0; rank < job->model->ranks; rank++) {
        bench_stamp_join(&all, &job->board->ranks[rank].steps[step]);
    }
    return bench_span_s(&all);
}

/* A round of small tensors counts with its median run, on the slower rank. */
static double round_s(const reshard_job_t *job, uint32_t round) {
    bench_stamp_t all = BENCH_STAMP_NONE;
    double latency = 0;
    for (uint32_t rank = 0; rank < job->model->ranks; rank++) {
        const reshard_lane_t *lane = &job->board->ranks[rank];
        bench_stamp_join(&all, &lane->rounds[round]);
        latency = lane->latency_s[round] > latency ? lane->latency_s[round] : latency;
    }
    return job->asked->model == NULL ? latency : bench_span_s(&all);
}

static bench_times_t our_times(const reshard_job_t *job) {
    double seconds[BENCH_ROUNDS_MAX];
    for (uint32_t i = 0; i < job->rounds; i++) {
        seconds[i] = round_s(job, i);
    }
    return bench_times_of(seconds, job->rounds);
}

static bench_times_t limit_times(const reshard_job_t *job, uint64_t bytes) {
    const reshard_board_t *board = job->board;
    double seconds[BENCH_ROUNDS_MAX];
    size_t count = 0;
    for (uint32_t i = 0; i < job->rounds && board->limit_bytes > 0; i++) {
        seconds[count++] =
            bench_span_s(&board->limit[i]) * (double)bytes / (double)board->limit_bytes;
    }
    return bench_times_of(seconds, count);
}

/* What a rank does itself in a round; after that it waits for others. */
static double work_s(const double *phases) {
    return phases[FERRY_PHASE_REDUCE] + phases[FERRY_PHASE_PACK] + phases[FERRY_PHASE_MOVE] +
           phases[FERRY_PHASE_UNPACK];
}

static const double *busiest(const reshard_job_t *job, uint32_t round) {
    const double *most = job->board->ranks[0].phases[round];
    for (uint32_t rank = 1; rank < job->model->ranks; rank++) {
        const double *one = job->board->ranks[rank].phases[round];
        most = work_s(one) > work_s(most) ? one : most;
    }
    return most;
}

static double phase_s(const reshard_job_t *job, int phase) {
    double seconds[BENCH_ROUNDS_MAX];
    for (uint32_t i = 0; i < job->rounds; i++) {
        seconds[i] = busiest(job, i)[phase];
    }
    return bench_times_of(seconds, job->rounds).median_s;
}

/* ---- counts ------------------------------------------------------------------------------------ */

static ferry_reshard_result_t all_ranks(const reshard_job_t *job) {
    ferry_reshard_result_t all = {0};
    for (uint32_t rank = 0; rank < job->model->ranks; rank++) {
        const ferry_reshard_result_t *one = &job->board->ranks[rank].result;
        all.bytes_received += one->bytes_received;
        all.bytes_direct += one->bytes_direct;
        all.bytes_read += one->bytes_read;
        all.bytes_pipeline += one->bytes_pipeline;
        all.chunks_direct += one->chunks_direct;
        all.chunks_copy += one->chunks_copy;
        all.chunks_transform += one->chunks_transform;
        all.writeback_direct_bytes += one->writeback_direct_bytes;
        all.writeback_copy_bytes += one->writeback_copy_bytes;
        all.writeback_transform_bytes += one->writeback_transform_bytes;
        all.buckets += one->buckets;
        all.buckets_checked += one->buckets_checked;
        all.staging_bytes += one->staging_bytes;
        all.commit_bytes += one->commit_bytes;
        all.passes = one->passes > all.passes ? one->passes : all.passes;
        all.rounds = one->rounds > all.rounds ? one->rounds : all.rounds;
        all.version = one->version > all.version ? one->version : all.version;
    }
    return all;
}

/* ---- all --------------------------------------------------------------------------------------- */

static reshard_facts_t read_facts(const reshard_job_t *job) {
    const reshard_model_t *model = job->model;
    reshard_facts_t facts = {
        .asked = *job->asked,
        .tensors = model->count,
        .layers = model->layers,
        .all_layers = model->all_layers,
        .experts = model->experts,
        .all_experts = model->all_experts,
        .bytes_read = model->bytes_read,
        .bytes_written = model->bytes_written,
        .plan_s = step_s(job, RESHARD_PLAN),
        .all = all_ranks(job),
    };
    for (int phase = FERRY_PHASE_REDUCE; phase < FERRY_PHASE_COUNT; phase++) {
        facts.phases[phase] = phase_s(job, phase);
    }
    return facts;
}

void reshard_figures_read(const reshard_job_t *job, reshard_facts_t *facts_p,
                          bench_figures_t *figures_p) {
    *facts_p = read_facts(job);
    const reshard_case_t *asked = &facts_p->asked;
    uint64_t bytes = facts_p->bytes_read + facts_p->bytes_written;
    *figures_p = (bench_figures_t){
        .name = asked->name,
        .tiny = asked->model == NULL,
        .altered = asked->budget_bytes > 0 || asked->check || asked->commit != 0,
        .ranks = job->model->ranks,
        .rounds = job->rounds,
        .bytes = bytes / 2,
        .ours = our_times(job),
        .limit = limit_times(job, bytes),
        .keep_s = step_s(job, RESHARD_PREPARE),
        .cold_s = step_s(job, RESHARD_COLD),
        .moved = {.bytes_received = facts_p->all.bytes_received,
                  .bytes_direct = facts_p->all.bytes_direct,
                  .bytes_read = facts_p->all.bytes_read,
                  .bytes_pipeline = facts_p->all.bytes_pipeline,
                  .staging_bytes = facts_p->all.staging_bytes},
        .reshard = facts_p,
    };
    (void)snprintf(figures_p->limit_name, sizeof figures_p->limit_name, "%s",
                   job->board->limit_name);
}

/* ---- as text ----------------------------------------------------------------------------------- */

/* What takes less than this part of all phases is not worth a word. */
#define WORTH 0.02

/* As cli_label_seconds, but a phase may be short. */
static cli_label_t label_phase(double seconds) {
    cli_label_t label = cli_label_seconds(seconds);
    if (seconds < 1e-3) {
        (void)snprintf(label.text, sizeof label.text, "%.0f us", seconds * 1e6);
    }
    return label;
}

void reshard_print_phases(const reshard_facts_t *facts, cli_output_t *out) {
    double all = 0;
    for (int phase = 0; phase < FERRY_PHASE_COUNT; phase++) {
        all += facts->phases[phase];
    }
    const char *between = "";
    for (int phase = 0; phase < FERRY_PHASE_COUNT; phase++) {
        if (facts->phases[phase] > WORTH * all) {
            cli_print(out, "%s%s %s", between,
                      ferry_reshard_phase_name((ferry_reshard_phase_t)phase),
                      label_phase(facts->phases[phase]).text);
            between = ", ";
        }
    }
}

static void print_scale(const reshard_facts_t *facts, cli_output_t *out) {
    if (facts->layers < facts->all_layers) {
        cli_print(out, ", %" PRIu32 " of %" PRIu32 " layers", facts->layers, facts->all_layers);
    }
    if (facts->experts < facts->all_experts) {
        cli_print(out, ", %" PRIu32 " of %" PRIu32 " experts", facts->experts, facts->all_experts);
    }
}

void reshard_print_case(const reshard_facts_t *facts, cli_output_t *out) {
    const reshard_case_t *asked = &facts->asked;
    cli_print(out, "%s  ", cli_dim(out));
    if (asked->model != NULL) {
        cli_print(out, "%s", asked->model);
        print_scale(facts, out);
        cli_print(out, ", %s -> %s%s, ", asked->from, asked->to,
                  asked->disjoint ? " on other ranks" : "");
    }
    cli_print(out, "%s%s%s", ferry_dtype_name(asked->dtype),
              asked->to_dtype != asked->dtype ? " -> " : "",
              asked->to_dtype != asked->dtype ? ferry_dtype_name(asked->to_dtype) : "");
    if (asked->mx != RESHARD_MX_NONE) {
        cli_print(out, ", MXFP8 on the %s", asked->mx == RESHARD_MX_SENDER ? "sender" : "receiver");
    }
    cli_print(out, "; %zu tensors, %s read, %s written", facts->tensors,
              cli_label_bytes(facts->bytes_read).text, cli_label_bytes(facts->bytes_written).text);
    if (facts->all.passes > 1) {
        cli_print(out, ", in %" PRIu32 " passes", facts->all.passes);
    }
    cli_print(out, "%s\n", cli_plain(out));
}

/* ---- as JSON ----------------------------------------------------------------------------------- */

static const char *mx_name(reshard_mx_t mx) {
    return mx == RESHARD_MX_RECEIVER ? "receiver" : mx == RESHARD_MX_SENDER ? "sender" : NULL;
}

static const char *commit_name(ferry_commit_mode_t mode) {
    return mode == FERRY_COMMIT_FLIP ? "flip" : mode == FERRY_COMMIT_GATE ? "gate" : NULL;
}

static void put_asked(const reshard_case_t *asked, cli_json_t *json, struct json_object *object) {
    cli_json_text(json, object, "model", asked->model);
    cli_json_text(json, object, "from", asked->from);
    cli_json_text(json, object, "to", asked->to);
    cli_json_bool(json, object, "disjoint", asked->disjoint);
    cli_json_text(json, object, "only", asked->only);
    cli_json_text(json, object, "dtype", ferry_dtype_name(asked->dtype));
    cli_json_text(json, object, "to_dtype", ferry_dtype_name(asked->to_dtype));
    cli_json_text(json, object, "mxfp8", mx_name(asked->mx));
    if (asked->mx != RESHARD_MX_NONE) {
        cli_json_text(json, object, "scales",
                      asked->mx_layout == FERRY_MX_SWIZZLED ? "swizzled" : "rows");
    } else {
        cli_json_null(json, object, "scales");
    }
    cli_json_text(json, object, "commit", commit_name(asked->commit));
    cli_json_bool(json, object, "check", asked->check);
    cli_json_u64(json, object, "budget_bytes", asked->budget_bytes);
}

static void put_writebacks(const ferry_reshard_result_t *all, cli_json_t *json,
                           struct json_object *object) {
    struct json_object *bytes = cli_json_object(json, object, "writeback_bytes");
    cli_json_u64(json, bytes, "direct", all->writeback_direct_bytes);
    cli_json_u64(json, bytes, "copy", all->writeback_copy_bytes);
    cli_json_u64(json, bytes, "transform", all->writeback_transform_bytes);
    struct json_object *chunks = cli_json_object(json, object, "chunks");
    cli_json_u64(json, chunks, "direct", all->chunks_direct);
    cli_json_u64(json, chunks, "copy", all->chunks_copy);
    cli_json_u64(json, chunks, "transform", all->chunks_transform);
    cli_json_u64(json, object, "buckets", all->buckets);
    cli_json_u64(json, object, "buckets_checked", all->buckets_checked);
    cli_json_u64(json, object, "commit_bytes", all->commit_bytes);
    cli_json_u64(json, object, "passes", all->passes);
    cli_json_u64(json, object, "pipeline_rounds", all->rounds);
    cli_json_u64(json, object, "version", all->version);
}

void reshard_put_json(const reshard_facts_t *facts, cli_json_t *json, struct json_object *object) {
    put_asked(&facts->asked, json, object);
    cli_json_u64(json, object, "tensors", facts->tensors);
    cli_json_u64(json, object, "layers", facts->layers);
    cli_json_u64(json, object, "all_layers", facts->all_layers);
    cli_json_u64(json, object, "experts", facts->experts);
    cli_json_u64(json, object, "all_experts", facts->all_experts);
    cli_json_u64(json, object, "bytes_read", facts->bytes_read);
    cli_json_u64(json, object, "bytes_written", facts->bytes_written);
    cli_json_seconds(json, object, "plan_seconds", facts->plan_s);
    struct json_object *phases = cli_json_object(json, object, "phases");
    for (int phase = FERRY_PHASE_REDUCE; phase < FERRY_PHASE_COUNT; phase++) {
        cli_json_seconds(json, phases, ferry_reshard_phase_name((ferry_reshard_phase_t)phase),
                         facts->phases[phase]);
    }
    put_writebacks(&facts->all, json, object);
}
