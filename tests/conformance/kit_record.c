/* SPDX-License-Identifier: BSD-3-Clause */
/* Which test points a rank passes, and how often. */
#include "kit_internal.h"

void tk_record_points(struct tk *t, bool on) {
    struct kit_record *record = &t->own->record;
    pthread_mutex_lock(&record->lock);
    if (on)
        record->points.count = 0;
    atomic_store_explicit(&record->on, on, memory_order_relaxed); /* the lock orders the rest */
    pthread_mutex_unlock(&record->lock);
}

void kit_record_point(struct kit_record *record, const char *point) {
    int i = 0;
    if (!atomic_load_explicit(&record->on, memory_order_relaxed))
        return;
    pthread_mutex_lock(&record->lock);
    while (i < record->points.count && strcmp(record->points.at[i].name, point) != 0)
        i++;
    if (i == record->points.count && i < KIT_RECORD_MAX) {
        snprintf(record->points.at[i].name, sizeof(record->points.at[i].name), "%s", point);
        record->points.at[i].count = 0;
        record->points.count++;
    }
    if (i < KIT_RECORD_MAX)
        record->points.at[i].count++;
    pthread_mutex_unlock(&record->lock);
}

int tk_recorded_points(struct tk *t) {
    struct kit_record *record = &t->own->record;
    int count;
    pthread_mutex_lock(&record->lock);
    count = record->points.count;
    pthread_mutex_unlock(&record->lock);
    TK_CHECK_MSG(t, count < KIT_RECORD_MAX, "more than %d points", KIT_RECORD_MAX - 1);
    return count;
}

const char *tk_recorded_point(struct tk *t, int index, int *count_p) {
    const struct kit_record *record = &t->own->record;
    TK_REQUIRE(t, index >= 0 && index < record->points.count);
    *count_p = record->points.at[index].count;
    return record->points.at[index].name;
}
