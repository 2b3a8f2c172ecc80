/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A case that failed by time alone while the machine itself was late shows nothing, so it is run
 * again, with nothing beside it and limits for such a machine, and its result says so. On a machine
 * that was not late the same is a failure at once, and so is everything that failed for another
 * reason.
 */
#include "runner.h"

#define LATE_MS 25
#define MOST_TIMES 2
/* What hung, mostly: once more has to do. */
#define LONG_S 4

static void take_worst(uint32_t *worst, uint32_t other) {
    *worst = other > *worst ? other : *worst;
}

bool runner_wants_again(const struct runner *runner, const struct runner_result *result,
                        const struct runner_again *again) {
    const int most = result->seconds < LONG_S ? MOST_TIMES : 1;
    const struct lateness_seen *late = &result->late;
    return runner->interrupted == 0 && result->by_time && again->times < most &&
           (late->wake_ms >= LATE_MS || late->fork_ms >= LATE_MS || late->kept_ms >= LATE_MS);
}

void runner_note_again(struct runner_again *again, const struct runner_result *result) {
    again->times++;
    take_worst(&again->late.wake_ms, result->late.wake_ms);
    take_worst(&again->late.fork_ms, result->late.fork_ms);
    take_worst(&again->late.kept_ms, result->late.kept_ms);
}

uint32_t runner_again_late_ms(const struct runner_again *again) {
    return lateness_of_a_call(&again->late);
}

void runner_tell_again(struct runner_result *result, const struct runner_again *again) {
    const struct lateness_seen *late = &again->late;
    const char *times = again->times == 1 ? "" : " twice";
    char *reason = result->reason, *text = NULL;
    int length;
    if (again->times == 0)
        return;
    if (late->wake_ms < LATE_MS && late->fork_ms < LATE_MS)
        length = asprintf(&text, "run again%s: the machine kept a rank from running for %u ms",
                          times, late->kept_ms);
    else if (late->wake_ms >= late->fork_ms)
        length = asprintf(&text, "run again%s: the machine woke %u ms late", times, late->wake_ms);
    else
        length = asprintf(&text, "run again%s: the machine started a process %u ms late", times,
                          late->fork_ms);
    if (length < 0)
        return;
    length = asprintf(&result->reason, "%s%s%s%s", reason == NULL ? "" : reason,
                      reason == NULL ? "" : " (", text, reason == NULL ? "" : ")");
    free(text);
    if (length < 0)
        result->reason = reason;
    else
        free(reason);
}

bool runner_run_alone(struct runner *runner, int index) {
    struct runner_result *result = &runner->results[index];
    struct runner_again again = {0};
    for (;;) {
        runner_run_case(runner, index, runner_again_late_ms(&again), result);
        if (!runner_wants_again(runner, result, &again))
            break;
        runner_note_again(&again, result);
        findings_free(result);
    }
    runner_tell_again(result, &again);
    return true;
}
