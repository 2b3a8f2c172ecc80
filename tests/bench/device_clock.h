/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A CUDA device's own clock: marks on a stream, and the time between two. By the driver, found at
 * run time; the public API has streams and events, but no times.
 *
 * Why not the host's clock: what it adds, a launch and the look for the end, is as long as several
 * of the operations that are timed.
 */
#ifndef SYMMEM_BENCH_DEVICE_CLOCK_H
#define SYMMEM_BENCH_DEVICE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

typedef struct device_clock device_clock;

#define DEVICE_CLOCK_MARKS 16

/* NULL if there is no driver, no such device, or one that does not tell; why was printed. */
device_clock *device_clock_open(int32_t device);
/* NULL is allowed. */
void device_clock_close(device_clock *self);
/* The device's name. */
const char *device_clock_name(const device_clock *self);
/* The stream that is marked: a CUstream, as symmem_stream_wrap takes it. */
void *device_clock_stream(const device_clock *self);
/* Puts mark `index` behind what is enqueued so far. */
bool device_clock_mark(device_clock *self, int index);
/* From mark `index` to the next; all work of the stream must be over. */
bool device_clock_between(device_clock *self, int index, double *us_p);

#endif
