/* isa.c - which instruction set is used.
 *
 * The choice is made at the first call and kept. Two threads that come first at once make the same
 * choice, so a relaxed store is enough. A wrong FERRY_ISA is never forgotten: the text is looked at again
 * at every call until it is right. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "kernel/kernels.h"

static _Atomic(const fy_kernels_t *) chosen;

static const fy_kernels_t *const tables[FY_ISA_COUNT] = {
    [FY_ISA_PLAIN] = &fy_kernels_plain,
#if defined(__x86_64__)
    [FY_ISA_AVX2] = &fy_kernels_avx2,
    [FY_ISA_AVX512] = &fy_kernels_avx512,
#endif
};

bool fy_isa_runs(fy_isa_t isa) {
    switch (isa) {
    case FY_ISA_PLAIN:
        return true;
#if defined(__x86_64__)
    case FY_ISA_AVX2:
        return __builtin_cpu_supports("avx2") != 0;
    case FY_ISA_AVX512:
        return fy_isa_runs(FY_ISA_AVX2) && __builtin_cpu_supports("avx512f") != 0 &&
               __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
               __builtin_cpu_supports("avx512vl") != 0;
#endif
    default:
        return false;
    }
}

void fy_isa_force(fy_isa_t isa) {
    atomic_store_explicit(&chosen, tables[isa], memory_order_relaxed);
}

ferry_status_t fy_isa_choose(const char *text, fy_isa_t *isa_p, ferry_error_t *err) {
    static const char *const names[FY_ISA_COUNT] = {"plain", "avx2", "avx512"};
    int best = FY_ISA_PLAIN;
    for (int isa = FY_ISA_COUNT; isa-- > 0;) {
        bool runs = fy_isa_runs((fy_isa_t)isa);
        if (text != NULL && strcmp(text, names[isa]) == 0) {
            if (!runs) {
                return fy_fail(err, FERRY_UNSUPPORTED, "FERRY_ISA=%s: this CPU does not have it",
                               text);
            }
            *isa_p = (fy_isa_t)isa;
            return FERRY_OK;
        }
        best = runs && isa > best ? isa : best;
    }
    if (text != NULL) {
        return fy_fail(err, FERRY_INVALID, "FERRY_ISA='%.40s': one of plain avx2 avx512", text);
    }
    *isa_p = (fy_isa_t)best;
    return FERRY_OK;
}

ferry_status_t fy_kernels_get(const fy_kernels_t **kernels_p, ferry_error_t *err) {
    const fy_kernels_t *kernels = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (kernels == NULL) {
        fy_isa_t isa = FY_ISA_PLAIN;
        FY_TRY(fy_isa_choose(getenv("FERRY_ISA"), &isa, err));
        fy_isa_force(isa);
        kernels = tables[isa];
    }
    *kernels_p = kernels;
    return FERRY_OK;
}

ferry_status_t ferry_kernel_isa(const char **name_p, ferry_error_t *err) {
    FY_NEED(name_p, err);
    const fy_kernels_t *kernels = NULL;
    FY_TRY(fy_kernels_get(&kernels, err));
    *name_p = kernels->name;
    return FERRY_OK;
}
